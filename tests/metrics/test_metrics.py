"""Streaming metrics against scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import metrics

sklearn = pytest.importorskip("sklearn.metrics")
random = np.random.default_rng(0)


def batches(device: ts.device, classes: int, count: int = 500) -> tuple[Any, Any, list[tuple[ts.Tensor, ts.Tensor]]]:
    """Scores and targets that agree somewhat, whole and in uneven batches; the last class is rare."""
    targets = np.minimum(random.integers(0, classes * 3, count) // 2, classes - 1)
    scores = random.normal(size=(count, classes)).astype(np.float32)
    scores[np.arange(count), targets] += 0.7
    parts = np.split(np.arange(count), [1, 64, 300])
    given = [(ts.from_numpy(scores[p]).to(device), ts.from_numpy(targets[p]).to(device)) for p in parts]
    return scores, targets, given


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("name", ["Precision", "Recall", "F1"])
def test_scores_of_classes(name: str, classes: int, average: str | None, device: ts.device) -> None:
    reference = {"Precision": sklearn.precision_score, "Recall": sklearn.recall_score, "F1": sklearn.f1_score}[name]
    scores, targets, given = batches(device, classes)
    metric = getattr(metrics, name)(classes, average=average)
    for batch in given:
        metric.update(*batch)
    expected = reference(targets, scores.argmax(1), average=average, zero_division=0)
    np.testing.assert_allclose(np.asarray(metric.compute()), expected, rtol=1e-12)
    metric.reset()
    metric.update(*given[-1])
    labels = range(classes) if average is None else None
    expected = reference(
        targets[300:], scores[300:].argmax(1), average=average, zero_division=0, labels=labels and [*labels]
    )
    np.testing.assert_allclose(np.asarray(metric.compute()), expected, rtol=1e-12)


def test_classes_that_never_occur_do_not_count(device: ts.device) -> None:
    metric = metrics.F1(10)
    predicted, wanted = np.array([1, 2, 2, 4]), np.array([1, 2, 3, 3])
    metric.update(ts.from_numpy(predicted).to(device), ts.from_numpy(wanted).to(device))
    assert metric.compute() == pytest.approx(sklearn.f1_score(wanted, predicted, average="macro", zero_division=0))


def test_two_classes_by_probability(device: ts.device) -> None:
    probabilities, targets = random.random(200).astype(np.float32), random.integers(0, 2, 200)
    given = ts.from_numpy(probabilities).to(device), ts.from_numpy(targets).to(device)
    for threshold in (0.5, 0.8):
        found = probabilities >= np.float32(threshold)
        for name, reference in (("Precision", "precision"), ("Recall", "recall"), ("F1", "f1"), ("Accuracy", None)):
            metric = getattr(metrics, name)(threshold=threshold)
            metric.update(*given)
            score = getattr(sklearn, f"{reference}_score") if reference else sklearn.accuracy_score
            assert metric.compute() == pytest.approx(score(targets, found), rel=1e-12), name


@pytest.mark.parametrize("classes", [2, 5])
def test_accuracy_and_confusions(classes: int, device: ts.device) -> None:
    scores, targets, given = batches(device, classes)
    accuracy, matrix = metrics.Accuracy(), metrics.ConfusionMatrix(classes)
    for batch in given:
        accuracy.update(*batch)
        matrix.update(*batch)
    assert accuracy.compute() == pytest.approx(sklearn.accuracy_score(targets, scores.argmax(1)))
    np.testing.assert_array_equal(matrix.compute().cpu().numpy(), sklearn.confusion_matrix(targets, scores.argmax(1)))
    assert matrix.compute().device == device


def test_pixels_have_classes_too(device: ts.device) -> None:
    scores, targets = ts.randn(2, 3, 4, 5, device=device), ts.randint(0, 3, (2, 4, 5), device=device)
    accuracy = metrics.Accuracy()
    accuracy.update(scores, targets)
    assert accuracy.compute() == pytest.approx((scores.argmax(1) == targets).float().mean().item())


@pytest.mark.parametrize("ties", [False, True])
def test_auroc(ties: bool, device: ts.device) -> None:
    targets = random.integers(0, 2, 400)
    scores = (random.normal(size=400) + targets).astype(np.float32)
    scores = np.round(scores) if ties else scores
    auroc = metrics.AUROC()
    for part in np.split(np.arange(400), [10, 250]):
        auroc.update(ts.from_numpy(scores[part]).to(device), ts.from_numpy(targets[part]).to(device))
    assert auroc.compute() == pytest.approx(sklearn.roc_auc_score(targets, scores), rel=1e-12)


def test_auroc_of_many_classes(device: ts.device) -> None:
    scores, targets, given = batches(device, 4)
    auroc = metrics.AUROC(4)
    for batch in given:
        auroc.update(*batch)
    shares = np.exp(scores.astype(np.float64))
    one_to_rest = [sklearn.roc_auc_score(targets == k, shares[:, k]) for k in range(4)]
    expected = np.mean([sklearn.roc_auc_score(targets == k, scores[:, k]) for k in range(4)])
    assert auroc.compute() == pytest.approx(expected, rel=1e-12) == pytest.approx(np.mean(one_to_rest), rel=1e-6)


def test_of_nothing() -> None:
    for metric in (metrics.Accuracy(), metrics.Mean(), metrics.AUROC()):
        assert math.isnan(metric.compute())
    assert metrics.ConfusionMatrix(3).compute().tolist() == [[0] * 3] * 3
    assert metrics.F1(3).compute() == 0.0
    alone = metrics.AUROC()
    alone.update(ts.tensor([0.5, 0.7]), ts.tensor([1, 1]))
    assert math.isnan(alone.compute())


def test_mean_takes_losses_without_their_graph(device: ts.device) -> None:
    mean = metrics.Mean()
    x = ts.ones(3, device=device, requires_grad=True)
    mean.update((x * 2).sum(), 3)
    mean.update(1.0)
    assert mean.total.requires_grad is False
    assert mean.compute() == pytest.approx(19 / 4)


def test_wrong_arguments(device: ts.device) -> None:
    x, y = ts.zeros(4, 3, device=device), ts.zeros(4, dtype=ts.int64, device=device)
    with pytest.raises(ValueError, match=r"Accuracy: expected predictions like the targets \(4,\).*got \(5, 3\)"):
        metrics.Accuracy().update(ts.zeros(5, 3, device=device), y)
    with pytest.raises(TypeError, match=r"expected targets of an integer dtype or bool, got tesserack\.float32"):
        metrics.Accuracy().update(x, x)
    with pytest.raises(ValueError, match=r"F1: expected classes from 0 to 1, got 0 to 7; set num_classes"):
        metrics.F1().update(y + 7, y)
    with pytest.raises(ValueError, match="expected average among 'binary', 'micro'"):
        metrics.Recall(3, average="mean")
    with pytest.raises(ValueError, match="is for 2 classes, got 3"):
        metrics.Precision(3, average="binary")
    with pytest.raises(ValueError, match=r"AUROC: expected targets \(n,\) and scores \(n,\) for 2 classes"):
        metrics.AUROC().update(x, y)
