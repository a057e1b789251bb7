"""What torchaudio computes from numbers that are the same everywhere: run under PyTorch, and under Tesserack's hook.

``python sound_cases.py OUT.npz`` writes every result, and with it gradients, or the name of the error;
test_beside_torch.py compares two such files.
"""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torchaudio
from torchaudio import functional as F
from torchaudio import models as M
from torchaudio import transforms as T
from torchaudio.compliance import kaldi

Case = tuple[str, Callable[..., Any], list[np.ndarray]]
RATE = 8000


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sound(*shape: int) -> np.ndarray:
    """Tones with some noise, within [-1, 1]."""
    t = np.arange(shape[-1]) / RATE
    tone = 0.4 * np.sin(2 * math.pi * 440 * t) + 0.2 * np.sin(2 * math.pi * 1210 * t + 0.3)
    return (tone + 0.05 * noise(*shape)).astype(np.float32)


def spectra(*shape: int) -> np.ndarray:
    return (noise(*shape) + 1j * noise(*shape, seed=1)).astype(np.complex64)


def filters() -> Iterator[Case]:
    wave = sound(2, 600)
    for name, arguments in (
        ("allpass_biquad", (RATE, 900.0)), ("bandpass_biquad", (RATE, 900.0)), ("bandreject_biquad", (RATE, 900.0)),
        ("band_biquad", (RATE, 900.0)), ("bass_biquad", (RATE, 6.0)), ("treble_biquad", (RATE, -4.0)),
        ("equalizer_biquad", (RATE, 900.0, 5.0)), ("highpass_biquad", (RATE, 900.0)), ("lowpass_biquad", (RATE, 900.0)),
        ("deemph_biquad", (44100,)), ("riaa_biquad", (44100,)), ("biquad", (0.2, 0.3, 0.1, 1.0, -0.4, 0.1)),
        ("contrast", (60.0,)), ("dcshift", (0.1, 0.05)), ("dcshift", (-0.3,)), ("gain", (3.0,)),
        ("overdrive", (12.0, 5.0)),
        ("flanger", (RATE,)), ("phaser", (RATE,)), ("phaser", (RATE, 0.5, 0.6, 2.0, 0.3, 0.4, False)),
        ("preemphasis", (0.9,)), ("deemphasis", (0.9,)), ("loudness", (RATE,)),
    ):  # fmt: skip
        given = sound(2, 8000) if name == "loudness" else wave[None] if name == "flanger" else wave
        yield f"{name}{arguments}", lambda x, n=name, a=arguments: getattr(F, n)(x, *a), [given]
    for options in ({"noise": True}, {"const_skirt_gain": True}):
        name = "band_biquad" if "noise" in options else "bandpass_biquad"
        yield f"{name}{options}", lambda x, n=name, o=options: getattr(F, n)(x, RATE, 700.0, **o), [wave]
    for kind in ("sinusoidal", "triangular"):
        yield (
            f"flanger {kind}",
            lambda x, k=kind: F.flanger(x, RATE, 1.0, 3.0, 20.0, 60.0, 0.7, 25.0, k, "quadratic"),
            [wave[None]],
        )
    a = np.array([[1.0, -0.6, 0.2], [1.0, 0.3, 0.1]], np.float32)
    b = np.array([[0.5, 0.2, 0.1], [0.1, 0.4, 0.3]], np.float32)
    yield "lfilter", lambda x, a, b: F.lfilter(x, a, b), [wave, a[0], b[0]]
    yield "lfilter of a bank", lambda x, a, b: F.lfilter(x, a, b, batching=False), [wave, a, b]
    yield "lfilter by channel", lambda x, a, b: F.lfilter(x, a, b, clamp=False), [wave, a, b]
    yield "lfilter in float64", lambda x, a, b: F.lfilter(x.double(), a.double(), b.double()), [wave, a[0], b[0]]
    yield "filtfilt", lambda x, a, b: F.filtfilt(x, a, b, clamp=False), [wave, a, b]
    yield "vad", lambda x: F.vad(x, RATE), [np.concatenate([np.zeros((1, 6000), np.float32), sound(1, 12000)], 1)]
    for mode in ("full", "valid", "same"):
        yield f"fftconvolve {mode}", lambda x, y, m=mode: F.fftconvolve(x, y, m), [wave, noise(2, 31)]
        yield f"convolve {mode}", lambda x, y, m=mode: F.convolve(x, y, m), [wave, noise(1, 31)]
    yield "add_noise", lambda x, n: F.add_noise(x, n, torch.tensor([3.0, 10.0])), [wave, noise(2, 600)]
    yield (
        "add_noise with lengths",
        lambda x, n: F.add_noise(x, n, torch.tensor([3.0, 10.0]), torch.tensor([300, 500])),
        [wave, noise(2, 600)],
    )
    yield "speed", lambda x: F.speed(x, RATE, 1.25)[0], [wave]
    yield "speed with lengths", lambda x: F.speed(x, RATE, 0.8, torch.tensor([600, 400]))[1], [wave]
    for kind in ("sinc_interp_hann", "sinc_interp_kaiser"):
        for new in (6000, 11025, 16000, 8000):
            yield f"resample {new} {kind}", lambda x, n=new, k=kind: F.resample(x, RATE, n, resampling_method=k), [wave]
    yield "resample wide", lambda x: F.resample(x, RATE, 5000, lowpass_filter_width=64, rolloff=0.9), [wave]
    yield "pitch_shift", lambda x: F.pitch_shift(x, RATE, 4), [wave]
    yield "mu law", lambda x: F.mu_law_encoding(x, 256), [wave]
    yield "mu law back", lambda x: F.mu_law_decoding(F.mu_law_encoding(x, 256), 256), [wave]
    yield "detect_pitch_frequency", lambda x: F.detect_pitch_frequency(x, RATE), [sound(1, 4000)]


def spectrograms() -> Iterator[Case]:
    wave, window = sound(2, 1200), lambda: torch.hann_window(200)
    for power in (None, 1.0, 2.0, 0.5):
        for normalized in (False, True, "window", "frame_length"):
            yield (
                f"spectrogram {power} {normalized}",
                lambda x, p=power, n=normalized: F.spectrogram(x, 0, window(), 256, 100, 200, p, n),
                [wave],
            )
    for pad_mode in ("reflect", "constant", "replicate", "circular"):
        yield (
            f"spectrogram {pad_mode}",
            lambda x, m=pad_mode: F.spectrogram(x, 4, window(), 256, 100, 200, 2.0, False, True, m),
            [wave],
        )
    yield (
        "spectrogram two sided",
        lambda x: F.spectrogram(x, 0, window(), 256, 100, 200, 1.0, False, False, onesided=False),
        [wave],
    )
    for length in (1200, None):
        yield (
            f"inverse_spectrogram {length}",
            lambda x, n=length: F.inverse_spectrogram(
                F.spectrogram(x, 0, window(), 256, 100, 200, None, False), n, 0, window(), 256, 100, 200, False
            ),
            [wave],
        )
    yield (
        "griffinlim",
        lambda x: F.griffinlim(
            F.spectrogram(x, 0, window(), 256, 64, 200, 2.0, False), window(), 256, 64, 200, 2.0, 8, 0.5, 1200, False
        ),
        [wave],
    )
    yield "spectral_centroid", lambda x: F.spectral_centroid(x, RATE, 0, window(), 256, 100, 200), [wave]
    yield (
        "phase_vocoder",
        lambda x: F.phase_vocoder(x, 1.3, torch.linspace(0, 300, 129)[:, None]),
        [spectra(2, 129, 20)],
    )
    positive = np.abs(noise(1, 3, 20, 30)) + 0.01
    for multiplier, top in ((10.0, None), (20.0, 40.0)):
        yield (
            f"amplitude_to_DB {top}",
            lambda x, m=multiplier, t=top: F.amplitude_to_DB(x, m, 1e-10, 0.2, t),
            [positive],
        )
    yield "DB_to_amplitude", lambda x: F.DB_to_amplitude(x, 0.7, 0.5), [noise(3, 20)]
    for mode in ("replicate", "constant", "reflect"):
        yield f"compute_deltas {mode}", lambda x, m=mode: F.compute_deltas(x, 5, m), [noise(2, 3, 20)]
    for norm in (None, "ortho"):
        yield f"create_dct {norm}", lambda n=norm: F.create_dct(13, 40, n), []
    for scale in ("htk", "slaney"):
        for norm in (None, "slaney"):
            yield (
                f"melscale_fbanks {scale} {norm}",
                lambda s=scale, n=norm: F.melscale_fbanks(129, 20.0, 3900.0, 24, RATE, n, s),
                [],
            )
    yield "linear_fbanks", lambda: F.linear_fbanks(129, 0.0, 4000.0, 20, RATE), []
    for centre, variance in ((False, False), (True, True), (True, False)):
        yield (
            f"sliding_window_cmn {centre} {variance}",
            lambda x, c=centre, v=variance: F.sliding_window_cmn(x, 12, 4, c, v),
            [noise(2, 30, 5)],
        )
    many = [spectra(4, 10, 16), np.abs(noise(10, 16))]
    yield "psd", F.psd, many
    yield "psd unnormalized", lambda s, m: F.psd(s, m, normalize=False), many
    yield "souden", lambda s, m: F.mvdr_weights_souden(F.psd(s, m), F.psd(s, 1 / (m + 1)), 1), many
    yield "mvdr by rtf", lambda s, m: F.mvdr_weights_rtf(s[:, :, 0].transpose(0, 1), F.psd(s, m), 1), many
    yield "rtf_power", lambda s, m: F.rtf_power(F.psd(s, m), F.psd(s, 1 / (m + 1)), 0), many
    yield "rtf_evd", lambda s, m: F.rtf_evd(F.psd(s, m)).abs(), many
    yield "apply_beamforming", F.apply_beamforming, [spectra(10, 4), many[0]]
    yield "frechet_distance", lambda m, c: F.frechet_distance(m, c @ c.T, m * 0.5, c.T @ c + 4), [
        noise(5), noise(5, 5) + 4 * np.eye(5, dtype=np.float32)
    ]  # fmt: skip
    yield "edit_distance", lambda: torch.tensor(F.edit_distance("kitten", "sitting")), []
    for wanted in (kaldi.spectrogram, kaldi.fbank, kaldi.mfcc):
        yield (
            f"kaldi {wanted.__name__}",
            lambda x, f=wanted: f(x, dither=0.0, sample_frequency=RATE),
            [sound(1, 2000) * 1000],
        )
    for kind in ("hanning", "hamming", "blackman", "rectangular"):
        yield (
            f"kaldi fbank {kind}",
            lambda x, k=kind: kaldi.fbank(
                x, dither=0.0, window_type=k, sample_frequency=RATE, use_energy=True, snip_edges=False, htk_compat=True
            ),
            [sound(1, 2000) * 1000],
        )
    yield (
        "kaldi warped",
        lambda x: kaldi.fbank(x, dither=0.0, vtln_warp=1.1, sample_frequency=RATE, use_power=False),
        [sound(1, 2000) * 1000],
    )


def transforms() -> Iterator[Case]:
    wave, magnitudes = sound(2, 1200), np.abs(noise(2, 129, 20))
    complexes, many = spectra(2, 129, 20), [spectra(4, 129, 16), np.abs(noise(129, 16)), np.abs(noise(129, 16, seed=2))]
    for made, given in (
        (lambda: T.Spectrogram(256, 200, 100), wave), (lambda: T.Spectrogram(256, power=None), wave),
        (lambda: T.MelSpectrogram(RATE, 256, n_mels=24), wave),
        (lambda: T.MelSpectrogram(RATE, 256, n_mels=24, norm="slaney", mel_scale="slaney", power=1.0), wave),
        (lambda: T.MFCC(RATE, 13, melkwargs={"n_fft": 256, "n_mels": 24}), wave),
        (lambda: T.MFCC(RATE, 13, log_mels=True, melkwargs={"n_fft": 256, "n_mels": 24}), wave),
        (lambda: T.LFCC(RATE, 24, n_lfcc=13, speckwargs={"n_fft": 256}), wave),
        (lambda: T.AmplitudeToDB("magnitude", 60.0), magnitudes), (lambda: T.AmplitudeToDB(), magnitudes),
        (lambda: T.ComputeDeltas(7), magnitudes), (lambda: T.MelScale(24, RATE, n_stft=129), magnitudes),
        (lambda: T.InverseMelScale(129, 24, RATE), np.abs(noise(1, 24, 10))),
        (lambda: T.InverseSpectrogram(256), complexes), (lambda: T.GriffinLim(256, 8, rand_init=False), magnitudes),
        (lambda: T.MuLawEncoding(), wave), (lambda: T.Resample(RATE, 5000), wave), (lambda: T.Vol(-3.0, "db"), wave),
        (lambda: T.Vol(2.0), wave), (lambda: T.Vol(1.5, "power"), wave),
        (lambda: T.SlidingWindowCmn(9, 3), noise(2, 30, 5)),
        (lambda: T.SpectralCentroid(RATE, 256), wave), (lambda: T.TimeStretch(100, 129, 0.8), complexes),
        (lambda: T.PitchShift(RATE, -3, n_fft=256), wave), (lambda: T.Loudness(RATE), sound(2, 8000)),
        (lambda: T.Preemphasis(0.95), wave), (lambda: T.Deemphasis(0.95), wave), (lambda: T.Vad(RATE), sound(1, 12000)),
        *((lambda k=k: T.Fade(200, 300, k), wave)
          for k in ("linear", "exponential", "logarithmic", "quarter_sine", "half_sine")),
    ):  # fmt: skip
        made_of = made.__code__.co_names[1]
        yield f"T.{made_of} {transforms.count}", lambda x, m=made: m()(x), [given]
        transforms.count += 1
    for mode in ("full", "valid", "same"):
        yield f"T.Convolve {mode}", lambda x, y, m=mode: T.Convolve(m)(x, y), [wave, noise(2, 40)]
        yield f"T.FFTConvolve {mode}", lambda x, y, m=mode: T.FFTConvolve(m)(x, y), [wave, noise(2, 40)]
    yield "T.AddNoise", lambda x, y: T.AddNoise()(x, y, torch.tensor([1.0, 2.0])), [wave, noise(2, 1200)]
    yield "T.Speed", lambda x: T.Speed(RATE, 0.9)(x)[0], [wave]
    yield "T.PSD", lambda s, m, n: T.PSD()(s, m), many
    for solution in ("ref_channel", "stv_power", "stv_evd"):
        for online in (False, True):
            yield (
                f"T.MVDR {solution} {online}",
                lambda s, m, n, k=solution, o=online: T.MVDR(0, k, multi_mask=False, online=o)(
                    s.to(torch.complex128), m, n
                ).abs(),
                many,
            )
    yield "T.SoudenMVDR", lambda s, m, n: T.SoudenMVDR()(s, F.psd(s, m), F.psd(s, n), 0), many
    yield "T.RTFMVDR", lambda s, m, n: T.RTFMVDR()(s, s[:, :, 0].transpose(0, 1), F.psd(s, n), 1), many


transforms.count = 0  # type: ignore[attr-defined] # names of cases that differ in their arguments


def filled(model: Any) -> Any:
    """Weights of one's own drawing: the generators differ."""
    rng = np.random.default_rng(3)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            drawn = rng.standard_normal(tuple(weight.shape)).astype(np.float32) * 0.08
            weight.copy_(torch.tensor(drawn + (1.0 if weight.dim() == 1 else 0.0)))
    return model.eval()


def small_wav2vec2(**options: Any) -> Any:
    layers = [(16, 10, 5), (16, 3, 2), (16, 3, 2)]
    return M.wav2vec2_model(**{
        "extractor_mode": "group_norm", "extractor_conv_layer_config": layers, "extractor_conv_bias": False,
        "encoder_embed_dim": 24, "encoder_projection_dropout": 0.0, "encoder_pos_conv_kernel": 8,
        "encoder_pos_conv_groups": 4,
        "encoder_num_layers": 2, "encoder_num_heads": 4, "encoder_attention_dropout": 0.0,
        "encoder_ff_interm_features": 32,
        "encoder_ff_interm_dropout": 0.0, "encoder_dropout": 0.0, "encoder_layer_norm_first": False,
        "encoder_layer_drop": 0.0, "aux_num_out": 9, **options,
    })  # fmt: skip


def models() -> Iterator[Case]:
    wave = sound(2, 1600)
    ragged = lambda: torch.tensor([1600, 1100])  # noqa: E731
    yield "M.wav2vec2", lambda x: filled(small_wav2vec2())(x, ragged()), [wave]
    wide = {"extractor_mode": "layer_norm", "encoder_layer_norm_first": True, "aux_num_out": None}
    yield "M.wav2vec2 wide", lambda x: filled(small_wav2vec2(**wide))(x), [wave]
    yield "M.wav2vec2 features", lambda x: filled(small_wav2vec2()).extract_features(x, ragged())[0], [wave]
    wavlm = {
        "extractor_mode": "group_norm", "extractor_conv_layer_config": [(16, 10, 5), (16, 3, 2)],
        "extractor_conv_bias": False,
        "encoder_embed_dim": 24, "encoder_projection_dropout": 0.0, "encoder_pos_conv_kernel": 8,
        "encoder_pos_conv_groups": 4,
        "encoder_num_layers": 2, "encoder_num_heads": 4, "encoder_num_buckets": 16, "encoder_max_distance": 40,
        "encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 32, "encoder_ff_interm_dropout": 0.0,
        "encoder_dropout": 0.0,
        "encoder_layer_norm_first": False, "encoder_layer_drop": 0.0, "aux_num_out": None,
    }  # fmt: skip
    yield "M.wavlm", lambda x: filled(M.wavlm_model(**wavlm))(x), [wave]
    yield "M.Conformer", lambda x: filled(M.Conformer(12, 4, 16, 2, 7))(x, torch.tensor([20, 13])), [noise(2, 20, 12)]
    yield (
        "M.Conformer groups",
        lambda x: filled(M.Conformer(12, 4, 16, 2, 7, use_group_norm=True, convolution_first=True))(
            x, torch.tensor([20, 20])
        ),
        [noise(2, 20, 12)],
    )
    yield "M.ConvTasNet", lambda x: filled(M.ConvTasNet(2, 8, 16, 3, 8, 12, 3, 2))(x), [wave[:, None]]
    yield "M.DeepSpeech", lambda x: filled(M.DeepSpeech(20, 16, 9))(x), [noise(2, 1, 15, 20)]
    yield (
        "M.Emformer",
        lambda x: filled(M.Emformer(16, 4, 24, 2, 4, 0.0, right_context_length=2))(x, torch.tensor([10, 7])),
        [noise(2, 12, 16)],
    )
    yield (
        "M.Emformer infer",
        lambda x: filled(M.Emformer(16, 4, 24, 2, 4, 0.0, left_context_length=3, right_context_length=2)).infer(
            x, torch.tensor([6, 6])
        )[0],
        [noise(2, 6, 16)],
    )
    yield "M.Wav2Letter", lambda x: filled(M.Wav2Letter(8, "mfcc", 13)).train(False)(x), [noise(1, 13, 60)]
    yield "M.WaveRNN", lambda x, s: filled(M.WaveRNN([2, 2, 2], 16, 8, 1, 16, 16, 3, 20, 8, 16))(x, s), [
        noise(1, 1, 8 * 8), noise(1, 1, 20, 10)
    ]  # fmt: skip
    yield (
        "M.HDemucs",
        lambda x: filled(M.HDemucs(["a", "b"], 2, channels=4, nfft=1024, depth=5))(x),
        [sound(1, 2, 4096)],
    )
    yield (
        "M.HDemucs whole",
        lambda x: filled(M.HDemucs(["a", "b"], 1, channels=4, nfft=1024, depth=5, dconv_attn=3, dconv_lstm=3))(x),
        [sound(1, 1, 8192)],
    )
    yield "M.SquimObjective", lambda x: filled(M.squim_objective_base())(x), [sound(1, 4000)]
    text = lambda: torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])  # noqa: E731
    tacotron = lambda: M.Tacotron2(  # noqa: E731
        n_mels=10, n_symbol=12, encoder_embedding_dim=16, encoder_n_convolution=2, decoder_rnn_dim=16, prenet_dim=8,
        attention_rnn_dim=16, attention_hidden_dim=8, attention_location_n_filter=4, postnet_n_convolution=2,
        postnet_embedding_dim=8, symbol_embedding_dim=16, decoder_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip

    # Its first layers drop elements in evaluation too, as the paper has it: without them.
    def without_dropout(model: Any) -> Any:
        model.decoder.prenet.forward = lambda x: [x := torch.relu(layer(x)) for layer in model.decoder.prenet.layers][
            -1
        ]
        return model

    yield (
        "M.Tacotron2",
        lambda mel: without_dropout(filled(tacotron()))(text(), torch.tensor([4, 2]), mel, torch.tensor([6, 5])),
        [noise(2, 10, 6)],
    )
    rnnt = lambda: M.rnnt.emformer_rnnt_model(  # noqa: E731
        input_dim=8, encoding_dim=16, num_symbols=10, segment_length=8, right_context_length=4,
        time_reduction_input_dim=8,
        time_reduction_stride=4, transformer_num_heads=4, transformer_ffn_dim=16, transformer_num_layers=1,
        transformer_dropout=0.0, transformer_activation="gelu", transformer_left_context_length=4,
        transformer_max_memory_size=0, transformer_weight_init_scale_strategy="depthwise", transformer_tanh_on_mem=True,
        symbol_embedding_dim=8, num_lstm_layers=1, lstm_layer_norm=True, lstm_layer_norm_epsilon=1e-3, lstm_dropout=0.0,
    )  # fmt: skip
    yield (
        "M.RNNT",
        lambda x: filled(rnnt())(
            x, torch.tensor([12]), torch.tensor([[1, 2, 3]], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
        )[0],
        [noise(1, 12, 8)],
    )
    yield (
        "M.RNNTBeamSearch",
        lambda x: torch.tensor(
            [score for _, _, _, score in M.RNNTBeamSearch(filled(rnnt()), 9)(x, torch.tensor([12]), 3)]
        ),
        [noise(1, 12, 8)],
    )


def every() -> Iterator[Case]:
    for family in (filters, spectrograms, transforms, models):
        yield from family()


def flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [part for item in result for part in flat(item)]
    return [result] if isinstance(result, torch.Tensor) else []


def run(function: Callable[..., Any], given: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    tensors = [torch.tensor(array) for array in given]
    for tensor in tensors:
        tensor.requires_grad_(tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    results = flat(function(*tensors))
    for number, result in enumerate(results):
        yield f"result {number}", result.detach().numpy()
    told = [r for r in results if r.requires_grad]
    if told:
        total = sum((r.abs() * torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape)).sum() for r in told)
        for number, grad in enumerate(
            torch.autograd.grad(total, [t for t in tensors if t.requires_grad], allow_unused=True)
        ):
            if grad is not None:
                yield f"gradient {number}", grad.resolve_conj().numpy()


def keep_what_is_saved() -> None:
    """torchaudio's loop for want of its library writes to its input, which the gradient needs."""
    from torchaudio.functional import filtering

    if hasattr(filtering, "_lfilter_core_generic_loop") and not hasattr(torch.ops.torchaudio, "_lfilter_core_loop"):
        loop = filtering._lfilter_core_generic_loop
        filtering._lfilter_core_loop = lambda x, a, out: loop(x.clone(), a, out)


def main() -> None:
    keep_what_is_saved()
    out: dict[str, np.ndarray] = {}
    for name, function, given in every():
        if len(sys.argv) > 2 and sys.argv[2] not in name:
            continue
        try:
            for part, array in run(function, given):
                out[f"{name}: {part}"] = array
        except Exception as error:
            out[f"{name}: error"] = np.array(f"{type(error).__name__}: {error}"[:300])
    out["torchaudio"] = np.array(torchaudio.__version__)
    np.savez(sys.argv[1], **{key.replace("/", "|"): value for key, value in out.items()})


if __name__ == "__main__":
    main()
