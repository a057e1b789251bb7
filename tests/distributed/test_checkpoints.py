"""Checkpoints of several ranks: what is written, and who may open it."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.distributed import checkpoint as dcp
from tesserack.distributed.checkpoint import default_planner, filesystem, format_utils, metadata, staging


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def test_checkpoints_of_four_ranks_open_on_others(launch: Any, folder: Path) -> None:
    done = launch("checkpoints.py", 4, "save", folder)
    assert done.returncode == 0, done.stderr[-3000:]
    for ranks in (3, 1):
        done = launch("checkpoints.py", ranks, "load", folder)
        assert done.returncode == 0, (ranks, done.stderr[-3000:])
    done = launch("checkpoints.py", 2, "load", folder)  # which ends with a rank killed while it saves
    assert done.returncode == 1 and "rank 1 was ended by the signal SIGKILL" in done.stderr, done.stderr[-3000:]
    found = {"weight": ts.zeros(4)}
    dcp.load(found, checkpoint_id=folder / "killed")
    assert found["weight"].tolist() == [1.0] * 4
    whole = folder / "whole.pt"
    format_utils.dcp_to_torch_save(folder / "divided", whole)
    state = ts.load(whole)
    assert state["epoch"] == 3 and state["nested"] == {"list": state["nested"]["list"], 4: "four", "empty": {}}
    assert state["grid"].tolist() == ts.arange(91.0).view(7, 13).tolist()
    format_utils.torch_save_to_dcp(whole, folder / "again")
    found = {"grid": ts.zeros(7, 13)}
    dcp.load(found, checkpoint_id=folder / "again")
    assert found["grid"].tolist() == state["grid"].tolist()


@pytest.mark.parametrize(("way", "ranks"), [("several", 2), ("failing", 3)])
def test_saves_in_threads_leave_ranks_to_go_on(launch: Any, tmp_path: Path, way: str, ranks: int) -> None:
    done = launch("async_saves.py", ranks, way, tmp_path)
    assert done.returncode == 0 and done.stdout.count("DONE") == ranks, done.stderr[-3000:]


def test_a_rank_killed_in_a_save_in_threads_leaves_the_one_before(launch: Any, tmp_path: Path) -> None:
    done = launch("async_saves.py", 3, "killed", tmp_path)
    assert done.returncode == 1 and "rank 1 was ended by the signal SIGKILL" in done.stderr, done.stderr[-3000:]
    for rank in (0, 2):
        assert f"TOLD {rank}: DistBackendError" in done.stdout and "rank 1 has ended" in done.stdout, done.stdout
    found = {"weight": ts.zeros(30, 5), "step": 0}
    dcp.load(found, checkpoint_id=tmp_path / "it")
    assert bool((found["weight"] == 1).all()) and found["step"] == 1


def saved(path: Path, **state: Any) -> Path:
    dcp.save(state, checkpoint_id=path)
    return path


def test_files_are_safetensors_and_text(tmp_path: Path) -> None:
    saved(tmp_path, weight=ts.arange(4.0), epoch=1)
    described = json.loads((tmp_path / ".metadata.json").read_text())
    (part,) = described["entries"]["weight"]["parts"]
    assert part["offsets"] == [0] and ts.load(tmp_path / part["file"])[part["key"]].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"wieght": ts.zeros(4)}, RuntimeError, "Missing key in checkpoint state_dict: wieght. It has weight"),
        ({"weight": ts.zeros(2, 2)}, ValueError, r"saved \(4,\) and current: \(2, 2\) for weight"),
        ({"weight": 3}, ValueError, "weight is a tensor of size"),
        ({"epoch": ts.zeros(1)}, ValueError, "epoch is a tensor here, and none in the checkpoint"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, given: Any, error: type, words: str) -> None:
    saved(tmp_path, weight=ts.arange(4.0), epoch=1)
    with pytest.raises(dcp.CheckpointException, match=words) as caught:
        dcp.load(given, checkpoint_id=tmp_path)
    assert isinstance(caught.value.failures[0][0], error)


def test_what_is_cut_short_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "first", weight=ts.ones(2))

    def stop(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(filesystem, "described", stop)
    for name in ("first", "second"):
        with pytest.raises(KeyboardInterrupt):
            saved(tmp_path / name, weight=ts.full((2,), 2.0))
    monkeypatch.undo()
    found = {"weight": ts.zeros(2)}
    dcp.load(found, checkpoint_id=tmp_path / "first")
    assert found["weight"].tolist() == [1.0, 1.0]
    with pytest.raises(dcp.CheckpointException, match="a save into it was cut short"):
        dcp.load(found, checkpoint_id=tmp_path / "second")
    with pytest.raises(dcp.CheckpointException, match="there is no checkpoint in"):
        dcp.load(found, checkpoint_id=tmp_path / "third")


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps({}))
    with pytest.raises(dcp.CheckpointException, match="described by a pickle, which is not opened"):
        dcp.load({"a": 1}, checkpoint_id=tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["entries"]["weight"]["parts"][0].update(file="../other"), "a name of a file beside it"),
        (lambda d: d["entries"]["weight"]["parts"][0].update(sizes=[9]), "of size"),
        (lambda d: d["entries"]["weight"].update(dtype="Tensor"), "dtype 'Tensor'"),
        (lambda d: d["entries"]["weight"]["parts"][0].update(key="other"), "has no 'other'"),
        (lambda d: d.update(version=9), "newer Tesserack"),
        (lambda d: d.update(format="else"), "no description"),
    ],
)
def test_a_wrong_description_is_an_error(tmp_path: Path, change: Any, words: str) -> None:
    described = saved(tmp_path, weight=ts.arange(4.0)) / ".metadata.json"
    data = json.loads(described.read_text())
    change(data)
    described.write_text(json.dumps(data))
    with pytest.raises(dcp.CheckpointException, match=words):
        dcp.load({"weight": ts.zeros(4)}, checkpoint_id=tmp_path)


def test_a_file_that_lost_its_end_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, weight=ts.arange(4.0))
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(dcp.CheckpointException, match="truncated"):
        dcp.load({"weight": ts.zeros(4)}, checkpoint_id=tmp_path)


def test_planners_may_rename_and_leave_out(tmp_path: Path) -> None:
    class Renamed(dcp.DefaultSavePlanner):
        def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
            super().set_up_planner({f"new_{k}": v for k, v in state_dict.items()}, storage_meta, is_coordinator)

    dcp.save({"weight": ts.ones(2)}, checkpoint_id=tmp_path, planner=Renamed())
    found = {"new_weight": ts.zeros(2, device="meta"), "other": 4}
    dcp.load(found, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert found["new_weight"].tolist() == [1.0, 1.0] and found["other"] == 4
    whole: dict[str, Any] = {}
    dcp.load(whole, checkpoint_id=tmp_path, planner=default_planner._EmptyStateDictLoadPlanner())
    assert list(whole) == ["new_weight"]
    with pytest.raises(dcp.CheckpointException, match="overwrite is False"):
        dcp.save({"weight": ts.ones(2)}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))


def test_parts_that_do_not_make_up_a_whole_are_refused() -> None:
    chunk, properties = metadata.ChunkStorageMetadata, metadata.TensorProperties(dtype=ts.float32)

    def plan(*parts: tuple[int, int]) -> Any:
        items = [
            dcp.WriteItem(
                metadata.MetadataIndex("w", (begin,)),
                default_planner.WriteItemType.SHARD,
                tensor_data=dcp.planner.TensorWriteData(chunk((begin,), (length,)), properties, (6,)),
            )
            for begin, length in parts
        ]
        return dcp.SavePlan(items)

    default_planner.create_default_global_save_plan([plan((0, 3)), plan((3, 3))])
    with pytest.raises(ValueError, match="have 5 elements in all, expected 6"):
        default_planner.create_default_global_save_plan([plan((0, 3)), plan((4, 2))])
    with pytest.raises(ValueError, match="overlap"):
        default_planner.create_default_global_save_plan([plan((0, 4)), plan((2, 2))])


def test_what_plain_files_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(dcp.CheckpointException, match=r"save: a.b: .*cannot store"):
        dcp.save({"a": {"b": object()}}, checkpoint_id=tmp_path)


def test_folders_of_published_models_are_read(tmp_path: Path) -> None:
    ts.save({"a": ts.arange(4.0), "b": ts.ones(2, 2)}, tmp_path / "model.safetensors.index.json", max_shard_size=20)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    found = {"a": ts.zeros(4), "b": ts.zeros(2, 2)}
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(tmp_path))
    assert found["a"].tolist() == [0.0, 1.0, 2.0, 3.0] and found["b"].tolist() == [[1.0, 1.0]] * 2
    whole: dict[str, Any] = {}
    reader = dcp.HuggingFaceStorageReader(tmp_path)
    dcp.load(whole, storage_reader=reader, planner=default_planner._EmptyStateDictLoadPlanner())
    assert sorted(whole) == ["a", "b"]
    with pytest.raises(NotImplementedError, match="absent"):
        dcp.HuggingFaceStorageWriter(tmp_path)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_saves_write_from_what_a_stager_has_copied(tmp_path: Path, asynchronous: bool) -> None:
    weight = ts.ones(2)
    stager = staging.DefaultStager(staging.StagingOptions(use_async_staging=asynchronous))
    saved = dcp.async_save({"weight": weight}, checkpoint_id=tmp_path, async_stager=stager)
    if asynchronous:
        saved.staging_completion.result()
        saved = saved.upload_completion
    weight.zero_()
    saved.result()
    found = {"weight": ts.zeros(2)}
    dcp.load(found, checkpoint_id=tmp_path)
    assert found["weight"].tolist() == [1.0, 1.0]
