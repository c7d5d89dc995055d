"""Synthetic admissions: the drawing against enumeration, the table against NHDS."""

import importlib.resources
import itertools
import pathlib

import numpy as np
import pytest

from dwl_jax import data
from dwl_jax.data import profiles, synthetic
from experiments import fidelity, fit_profiles

REAL = pathlib.Path(__file__).parents[2] / "shared" / "data" / "nhds2010_part.txt.bz2"


def test_symmetric_polynomials_match_enumeration():
    odds = np.random.default_rng(0).gamma(1.0, size=(2, 6))
    got = profiles.symmetric(odds, 4)
    for k, j, n in itertools.product(range(2), range(7), range(5)):
        sets = itertools.combinations(odds[k, j:], n)
        want = sum(np.prod(s) for s in sets)
        np.testing.assert_allclose(got[k, j, n], want, rtol=1e-12)


def test_inclusion_and_draws_match_enumeration():
    odds = np.random.default_rng(1).gamma(1.0, size=(1, 5))
    sizes = np.array([[0.0, 0.2, 0.5, 0.3]])
    want = np.zeros(5)
    for n, share in enumerate(sizes[0]):
        sets = list(itertools.combinations(range(5), n))
        weight = np.array([np.prod(odds[0, list(s)]) for s in sets])
        for s, w in zip(sets, weight / weight.sum(), strict=True):
            want[list(s)] += share * w
    np.testing.assert_allclose(fit_profiles.inclusion(odds, sizes)[0], want, rtol=1e-12)
    rng = np.random.default_rng(2)
    size = rng.choice(4, p=sizes[0], size=100_000)
    drawn = profiles.draw_codes(rng, odds, np.zeros(size.size, int), size)
    np.testing.assert_array_equal(drawn.sum(axis=1), size)
    np.testing.assert_allclose(drawn.mean(axis=0), want, atol=0.01)


def test_solved_odds_give_the_target():
    rng = np.random.default_rng(3)
    sizes = rng.dirichlet(np.ones(4), size=3)
    sizes[:, 0] = 0.0
    sizes /= sizes.sum(axis=1, keepdims=True)
    target = fit_profiles.inclusion(rng.gamma(1.0, size=(3, 6)), sizes)
    odds = fit_profiles.solve_odds(np.ones((3, 6)), target, sizes, steps=300)
    np.testing.assert_allclose(fit_profiles.inclusion(odds, sizes), target, atol=1e-6)


def test_default_corpus():
    c = data.synthetic_admissions()
    assert c.counts.shape == (11_086, 81)
    assert c.vocab == data.paper81_words()
    assert c.descriptions == tuple(code.label for code in data.paper81())
    assert data.count_kind(c, "disease").min() == 2
    assert data.count_kind(c, "procedure").min() == 2
    assert c.counts.max() == 1
    assert set(c.labels["died"]) == {"alive", "died"}
    assert set(c.labels["admission_type"]) == {
        *("elective", "emergency", "newborn", "urgent")
    }


def test_same_seed_same_corpus():
    a, b = (data.synthetic_admissions(500, seed=7) for _ in range(2))
    np.testing.assert_array_equal(a.counts.toarray(), b.counts.toarray())
    np.testing.assert_array_equal(a.labels["died"], b.labels["died"])
    other = data.synthetic_admissions(500, seed=8)
    assert (a.counts != other.counts).nnz > 0
    with pytest.raises(ValueError, match="at least 1, got 0"):
        data.synthetic_admissions(0)


def test_any_size_stays_sparse():
    c = data.synthetic_admissions(70_000)  # more than one block
    assert c.num_docs == 70_000 and c.ids[-1] == "synthetic-69999"


def test_draws_follow_the_table():
    table = synthetic.patient_profiles()
    c = data.synthetic_admissions(60_000)
    died = (c.labels["died"] == "died").mean()
    np.testing.assert_allclose(died, table.weight @ table.died, atol=0.005)
    sizes = np.bincount(data.count_kind(c, "disease"), minlength=16) / c.num_docs
    np.testing.assert_allclose(sizes, table.weight @ table.num_diseases, atol=0.01)


def test_table_holds_rounded_probabilities_and_no_thin_profile():
    folder = importlib.resources.files("dwl_jax.data") / "tables"
    rows = (folder / "profiles.csv").read_text(encoding="ascii").splitlines()[1:]
    assert all(len(cell) <= 6 for row in rows for cell in row.split(","))
    table = synthetic.patient_profiles()
    assert table.weight.min() * 8_914 >= 49.5  # admissions it was fitted on
    assert (table.num_diseases[:, :2] == 0).all()
    assert (table.num_procedures[:, :2] == 0).all()


def test_table_survives_writing(tmp_path):
    table = synthetic.patient_profiles()
    path = tmp_path / "p.csv"
    profiles.write(table, path)
    np.testing.assert_allclose(profiles.read(path).codes, table.codes, atol=5e-5)
    path.write_text("weight,died\n1,2\n", encoding="ascii")
    with pytest.raises(ValueError, match="not a table of probabilities"):
        profiles.read(path)


def test_fidelity_of_a_corpus_with_itself():
    c = data.synthetic_admissions(3_000)
    found = fidelity.measure(c, c)
    assert found.prevalence_error == found.size_distance == found.type_given_code == 0
    np.testing.assert_allclose([found.pair_corr, found.death_corr], 1.0)
    with pytest.raises(ValueError, match="different vocabularies"):
        fidelity.measure(c, data.select_top(c, diseases=5))


def test_em_finds_two_profiles():
    """Two disjoint profiles are told apart from their draws alone."""
    table = synthetic.patient_profiles()
    low, high = np.full(81, 1e-5), np.full(81, 1e-5)
    low[[0, 1, 2, 56, 57, 58]], high[[3, 4, 5, 59, 60, 61]] = 0.6, 0.6
    two = table._replace(
        weight=np.array([0.3, 0.7]),
        codes=np.stack([low, high]),
        num_diseases=np.eye(4)[[2, 3]],
        num_procedures=np.eye(4)[[2, 2]],
        died=np.array([0.1, 0.6]),
        types=table.types[:2],
    )
    c = data.synthetic_admissions(1_500, table=two)
    d = fit_profiles.to_data(c, two.type_names, (15, 8))
    options = {"num_profiles": 2, "seed": 0, "smooth": 0.1, "least": 50.0}
    found, _, number = fit_profiles.fit(d, two.type_names, iters=30, **options)
    order = np.argsort(found.weight)
    np.testing.assert_allclose(found.weight[order], two.weight, atol=0.03)
    np.testing.assert_allclose(found.died[order], two.died, atol=0.05)
    np.testing.assert_allclose(number.sum(), 1_500)


@pytest.mark.skipif(
    not REAL.exists(), reason=f"the NHDS file {REAL.name} is not on this machine"
)
def test_default_corpus_is_near_the_survey():
    real = data.read_nhds(REAL, codes="paper81", min_diseases=2, min_procedures=2)
    found = fidelity.measure(real, data.synthetic_admissions())
    assert found.num_pairs > 1_000 and found.pair_corr >= 0.95
    assert found.prevalence_corr >= 0.99 and found.prevalence_worst < 0.02
    assert found.size_distance < 0.05 and found.death_corr >= 0.95
    assert found.type_given_code < 0.06
    assert abs(np.subtract(*found.death_rate)) < 0.01
