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
    assert cfg.closest == "weight"
    assert cfg.optimizer_A == cfg.optimizer_R == cfg.optimizer_theta == "sgd"


def test_default_preset_has_what_was_found_to_be_needed():
    cfg, hyper, _ = presets.default()
    assert cfg.scale != "none"  # else epsilon has no unit, and tau does nothing
    assert cfg.loss == "kl" and cfg.optimizer_A == cfg.optimizer_R == "adam"
    assert cfg.joint and cfg.reduction == "mean"
    assert 0.0 < hyper.tau <= 1.0 and hyper.decay_epochs == 6
    assert cfg.start == "spectral" and cfg.num_iters == 1 and hyper.blur == 0.8


def test_the_recipe_has_a_number_of_steps_and_batches_follow():
    for num_docs, num_words in ((30, 3), (250, 81), (4_457, 500), (17_800, 5_550)):
        cfg, _, epochs = presets.default(presets.Sizes(num_docs, num_words))
        batches = -(-num_docs // min(num_docs, cfg.batch_size))
        assert 400 <= epochs * batches < 400 + 3 * batches
    assert presets.default(presets.Sizes(10**6, 10_000)).num_epochs == 3
    few = presets.default(presets.Sizes(1_000), num_steps=32, batch_size=125)
    assert few.num_epochs == 4 and few.hyper.decay_epochs == 4.0
    assert presets.default(presets.Sizes(1_000), num_steps=10).num_epochs == 1
    assert presets.default(np.ones((40, 7)), num_epochs=2).num_epochs == 2
    with pytest.raises(ValueError, match=r"counts or Sizes, not \(3,\)"):
        presets.default(np.ones(3))


def test_more_words_change_the_recipe_little_by_little():
    words = np.unique(np.geomspace(3, 10_000, 400).astype(int))
    found = [presets.sized(int(n)) for n in words]
    falls = {"blur", "rate_R", "rate_theta"}
    for name in found[0]:
        values = np.array([f[name] for f in found], float)
        if name in falls:
            assert (np.diff(values) <= 0.0).all()
        elif name in ("dim", "batch_size", "renew"):
            assert (np.diff(values) >= 0.0).all()
        if name not in ("renew", "rate_joint"):  # the rate is for all that share C
            assert (np.abs(np.diff(np.log(values))) < 0.05).all(), name
    per_step = np.array([f["rate_joint"] / f["renew"] for f in found])
    assert (np.diff(np.log(per_step)) > -0.05).all()
    assert presets.sized(3) == presets.sized(81)


def test_who_gives_epsilon_gets_it():
    assert presets.default(epsilon=0.1).hyper.blur == 0.0
    assert presets.default(epsilon=0.1).hyper.epsilon == 0.1
    assert presets.default(blur=0.3).hyper.blur == 0.3
    assert presets.default(blur=0, epsilon=0.2).hyper.epsilon == 0.2
    with pytest.raises(ValueError, match="epsilon and blur"):
        presets.default(blur=0.3, epsilon=0.2)


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


KINDS = ["procedure", "disease", "disease", "procedure", "disease"] * 3


def start(kinds, dim=10, share_of=0.3):
    X = 0.01 * np.random.default_rng(0).normal(size=(15, 6)) + 3.0
    cfg = presets.default(mode="finetune", dim=dim).cfg
    assert cfg.embedding.given == round(0.7 * dim) and cfg.embedding.share == share_of
    return X, presets.starting_vectors(X, cfg, kinds)


def test_kinds_start_in_coordinates_of_their_own_as_many_as_their_share():
    kinds = np.array(KINDS)
    _, V = start(kinds)
    used = {kind: np.abs(V[kinds == kind]).max(axis=0) > 0.0 for kind in set(KINDS)}
    assert used["disease"].tolist() == [True] * 4 + [False] * 3
    assert used["procedure"].tolist() == [False] * 4 + [True] * 3
    D = np.linalg.norm(V[:, None] - V[None], axis=-1)[kinds == "disease"]
    # No procedure is nearer to a disease than any other is.
    np.testing.assert_allclose(
        np.ptp(D[:, kinds == "procedure"], axis=1), 0.0, atol=1e-9
    )


def test_a_kind_keeps_the_principal_part_of_its_gram_matrix():
    kinds = np.array(KINDS)
    X, V = start(kinds)
    own = X[kinds == "disease"] - X[kinds == "disease"].mean(axis=0)
    value, vector = np.linalg.eigh(own @ own.T)
    want = (vector[:, -4:] * value[-4:]) @ vector[:, -4:].T
    got = V[kinds == "disease"] @ V[kinds == "disease"].T
    np.testing.assert_allclose(got / np.trace(got), want / np.trace(want), atol=1e-9)


def test_vectors_have_their_length_in_the_ground_cost_and_procedures_one_length():
    kinds = np.array(KINDS)
    length = 0.3 * np.linalg.norm(start(kinds)[1], axis=1)
    rms = np.sqrt(np.mean(length[kinds == "disease"] ** 2))
    np.testing.assert_allclose(rms, 8.0, rtol=1e-12)
    np.testing.assert_allclose(length[kinds == "procedure"], 1.25 * 8.0, rtol=1e-12)


def test_words_of_one_kind_share_all_coordinates():
    X, V = start(None)
    np.testing.assert_allclose(V, start(["word"] * 15)[1])
    centred = X - X.mean(axis=0)
    gram = V @ V.T
    want = centred @ centred.T
    np.testing.assert_allclose(gram / np.trace(gram), want / np.trace(want), atol=1e-9)
    assert V.shape == (15, 7) and (V[:, 6] == 0.0).all()  # vectors had six


def test_a_kind_of_one_word_and_more_kinds_than_coordinates_are_no_error():
    _, V = start(["procedure"] + ["disease"] * 14)
    assert np.isfinite(V).all() and (V[0] == 0.0).all()
    _, V = start(KINDS, dim=2)
    assert V.shape == (15, 1) and (V != 0.0).all()


@pytest.mark.parametrize("bad", [np.zeros((3, 2)), np.ones((3, 2))])
def test_starting_vectors_that_are_all_the_same_are_refused(bad):
    cfg = presets.default(mode="finetune").cfg
    with pytest.raises(ValueError, match="all be the same"):
        presets.starting_vectors(bad, cfg)
    with pytest.raises(ValueError, match="finite"):
        presets.starting_vectors(np.full((3, 2), np.nan), cfg)
    with pytest.raises(ValueError, match="keeps no vectors"):
        presets.starting_vectors(np.eye(3), presets.default().cfg)
