"""Presets: the published numbers, literally, and how to change them."""

import numpy as np
import pytest

from dwl_jax import presets


@pytest.mark.parametrize(("pretrained", "epochs"), [(False, 50), (True, 5)])
def test_paper_preset_is_what_the_paper_printed(pretrained, epochs):
    cfg, hyper, num_epochs = presets.paper(pretrained=pretrained)
    assert num_epochs == epochs
    assert (cfg.num_topics, cfg.dim, cfg.batch_size) == (8, 50, 256)
    assert (hyper.tau, hyper.epsilon, hyper.beta) == (0.5, 0.01, 0.01)
    assert hyper.epsilon_transport == hyper.epsilon
    assert hyper.rate_A == hyper.rate_R == hyper.rate_theta == 0.05
    assert hyper.anchor == hyper.label_weight == hyper.decay_epochs == 0.0
    assert (cfg.loss, cfg.scale, cfg.squared) == ("squared", "none", False)
    assert (cfg.step, cfg.joint, cfg.reduction) == ("explicit", False, "sum")
    assert (cfg.closest, cfg.hold, cfg.debias) == ("weight", "none", False)
    assert cfg.optimizer_A == cfg.optimizer_R == cfg.optimizer_theta == "sgd"
    assert cfg.clip_norm is None and cfg.warm_start is False


def test_default_preset_has_what_was_found_to_be_needed():
    cfg, hyper, _ = presets.default()
    assert cfg.scale != "none"  # else epsilon has no unit, and tau does nothing
    assert cfg.loss == "kl" and cfg.optimizer_A == cfg.optimizer_R == "adam"
    assert cfg.joint and cfg.reduction == "mean"
    assert 0.0 < hyper.tau <= 1.0 and hyper.decay_epochs == 20


@pytest.mark.parametrize("preset", [presets.paper, presets.default])
def test_any_field_of_either_can_be_changed(preset):
    got = preset(num_topics=24, tau=0.25, num_epochs=3)
    assert (got.cfg.num_topics, got.hyper.tau, got.num_epochs) == (24, 0.25, 3)
    assert got.cfg.loss == preset().cfg.loss
    assert got.hyper.epsilon == preset().hyper.epsilon


def test_settings_that_do_not_exist_or_are_wrong_are_named():
    with pytest.raises(ValueError, match="no such setting: epsilom, num_topic"):
        presets.default(num_topic=3, epsilom=0.1, tau=0.5)
    with pytest.raises(ValueError, match="Config.num_topics must be an int"):
        presets.paper(num_topics=0)


def test_modes_differ_in_what_they_need():
    assert presets.default(mode="supervised").hyper.label_weight > 0.0
    assert presets.default(mode="finetune").hyper.label_weight == 0.0
    with pytest.raises(ValueError, match="mode must be one of"):
        presets.default(mode="semi")


def test_rates_fall_over_the_epochs_of_the_run_unless_told_otherwise():
    assert presets.default(num_epochs=7).hyper.decay_epochs == 7.0
    assert presets.default(num_epochs=7, decay_epochs=0.0).hyper.decay_epochs == 0.0


def test_starting_vectors_have_size_2_and_the_directions_of_the_centred_ones():
    X = 0.01 * np.random.default_rng(0).normal(size=(9, 4)) + 3.0
    centred = X - X.mean(axis=0)
    got = presets.starting_vectors(X, power=1.0)
    np.testing.assert_allclose(np.mean(got**2), 4.0, rtol=1e-12)
    np.testing.assert_allclose(got / centred, got[0, 0] / centred[0, 0], rtol=1e-9)


def test_starting_vectors_have_a_flat_spectrum():
    X = np.random.default_rng(0).normal(size=(9, 4)) * np.array([1.0, 5.0, 9.0, 0.2])
    X -= X.mean(axis=0)
    got = presets.starting_vectors(X)
    # The symmetric root of the Gram matrix has the same vectors, roots of the values.
    value, vector = np.linalg.eigh(X @ X.T)
    want = vector * np.sqrt(np.maximum(value, 0.0)) @ vector.T
    gram = got @ got.T
    np.testing.assert_allclose(gram / np.trace(gram), want / np.trace(want), atol=1e-7)


@pytest.mark.parametrize("bad", [np.zeros((3, 2)), np.ones((3, 2))])
def test_starting_vectors_that_are_all_the_same_are_refused(bad):
    with pytest.raises(ValueError, match="all be the same"):
        presets.starting_vectors(bad)
    with pytest.raises(ValueError, match="finite"):
        presets.starting_vectors(np.full((3, 2), np.nan))
