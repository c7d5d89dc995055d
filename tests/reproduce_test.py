"""The whole reproduction at toy scale: files, going on, bad input, a real browser."""

import json
import os
import pathlib
import re
import shutil
import tempfile
from unittest import mock

import numpy as np
import ot
import processes
import pytest

from dwl_jax import data
from experiments import corpora, reproduce
from experiments.paper import published, report, tau, units
from experiments.paper import run as run_lib

TINY = {"num_topics": 3, "dim": 4, "num_iters": 2, "num_epochs": 2, "batch_size": 64}
SPEC = corpora.Spec(num_docs=260)
SETTINGS = {"trials": 2, "splits": 2, "steps": 2, "changes": TINY}


def fake_unit(corpus, kind, number, changes, steps):
    """Every row of a unit, without learning."""
    del corpus, changes, steps
    rng = np.random.default_rng([number, len(kind)])
    table1 = [r.row for rows in published.TABLE1.values() for r in rows]
    table2 = [row for rows in published.TABLE2.values() for _, _, row, _ in rows]
    draw = lambda cells: {cell: float(rng.uniform(40, 60)) for cell in cells}
    out = {row: draw(published.ACCURACY) for row in table1}
    for row in table2:
        out[row] = out.get(row, {}) | draw(published.RECOMMENDED)
    return out


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run, and how often a unit was computed."""
    out = str(tmp_path_factory.mktemp("runs") / "toy")
    with (
        mock.patch.object(units, "unit", side_effect=fake_unit) as unit,
        mock.patch.object(tau, "SEEDS", 2),
        mock.patch.object(tau, "TAUS", (0.5, 1.0)),
    ):
        run = run_lib.begin(out, SPEC, **SETTINGS)
        path = reproduce.reproduce(run, list(reproduce.PARTS))
    return run, path, unit.call_count


@pytest.mark.slow
def test_run_directory_has_tables_figures_models_and_settings(done):
    run, path, _ = done
    assert path == run.path("report.html")
    files = lambda folder: {p.split(".")[0] for p in _list(run, folder)}
    for name in ("table1", "table2", "table3", "table1_paired", "tau", "trials"):
        assert {f"{name}.csv", f"{name}.md"} <= set(_list(run, "tables")), name
    want = {"graph", "table1_paired", "table2_paired", "tau", "transport"}
    assert want <= files("figures") <= want | {"graph_parts"}
    for name in files("figures"):
        assert {f"{name}.png", f"{name}.svg"} <= set(_list(run, "figures"))
    for mode in ("scratch", "finetune"):
        names = set(_list(run, f"models/{mode}"))
        assert {"metrics.jsonl", "tensorboard", "model", "pyldavis.json"} <= names
    note = _json(run, "settings.json")
    assert note["config"]["dim"] == 4
    assert {"jax", "numpy"} <= set(note["versions"])


def _list(run, folder):
    return os.listdir(run.path(folder, ""))


def _json(run, name):
    return json.loads(pathlib.Path(run.path(name)).read_text())


@pytest.mark.slow
def test_nothing_is_computed_twice_and_more_trials_go_on(done):
    run, _, count = done
    assert count == run.trials + run.splits
    again = run_lib.begin(run.out, SPEC, **SETTINGS)
    with (
        mock.patch.object(units, "unit", side_effect=fake_unit) as unit,
        mock.patch("experiments.paper.models._train", side_effect=AssertionError),
        mock.patch("experiments.paper.tau.sweep", side_effect=AssertionError),
    ):
        reproduce.reproduce(again, list(reproduce.PARTS))
        assert unit.call_count == 0
        more = run_lib.begin(run.out, SPEC, **(SETTINGS | {"trials": 3}))
        reproduce.reproduce(more, ["table2"])
        assert unit.call_count == 1  # the third trial


@pytest.mark.slow
def test_a_sweep_that_was_stopped_goes_on_to_the_same_end(done, tmp_path):
    run, _, _ = done
    with (
        mock.patch.object(tau, "SEEDS", 2),
        mock.patch.object(tau, "TAUS", (0.5, 1.0)),
    ):
        whole = tau.curves(run)  # from the file
        part = run_lib.begin(str(tmp_path / "part"), SPEC, **SETTINGS)
        with (
            mock.patch.object(tau, "_write", _stop_after(tau._write)),
            pytest.raises(run_lib.Stopped),
        ):
            tau.curves(part)
        resumed = tau.curves(part)
    for name, want in whole.items():
        np.testing.assert_allclose(resumed[name], want, rtol=1e-5)


def _stop_after(write):
    def call(*args):
        write(*args)
        raise run_lib.Stopped(15)

    return call


@pytest.mark.slow
def test_page_is_whole_has_no_address_and_no_record(done):
    _, path, _ = done
    text = pathlib.Path(path).read_text(encoding="utf-8")
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)  # plotly's
    own = own.replace("http://www.w3.org", "")
    assert not re.search(r"(src|href)=\"https?:", own)
    assert "synthetic-0" not in text  # no id of a document
    for part in reproduce.PARTS:
        assert f'id="{part}"' in text
    assert "Left out: no tweets were given" in text
    assert "python -m experiments.reproduce --corpus=synthetic --trials=" in text
    assert "NaN" not in own.split('id="known"')[1].split("</script>")[0]


def test_json_in_the_page_cannot_end_its_element():
    text = report._script_json({"name": "</script><b>"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><b>"}


# Bad input, before any work.


def refused(tmp_path, match, out=None, spec=SPEC, **more):
    with (
        mock.patch.object(run_lib.protocol, "problem", side_effect=AssertionError),
        pytest.raises(ValueError, match=match),
    ):
        run_lib.begin(str(out or tmp_path / "new"), spec, **(SETTINGS | more))


def test_wrong_input_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("x")
    file = str(tmp_path / "a.txt")
    refused(tmp_path, "--out=.*a.txt: is a file", out=file)
    refused(tmp_path, "cannot be written", out=f"{file}/below")
    refused(tmp_path, "will not write into it", out=tmp_path / "foreign")
    refused(tmp_path, "no such setting: colour", changes={"colour": 1})
    none = corpora.Spec(corpus="nhds", path=str(tmp_path / "none"))
    refused(tmp_path, "--path: .*none", spec=none)
    refused(tmp_path, "--path: .*a.txt", spec=corpora.Spec(corpus="nhds", path=file))
    lines = corpora.Spec(corpus="lines", path=file)
    refused(tmp_path, "--scale|--corpus=lines", spec=lines)
    refused(tmp_path, "--scale=0.1: 26 of 260", scale=0.1)


def test_text_is_no_admission(tmp_path):
    texts = [["a", "b"], ["b", "c"]] * 80
    data.save(data.from_tokens(texts), tmp_path / "t.npz")
    spec = corpora.Spec(corpus="npz", path=str(tmp_path / "t.npz"))
    refused(tmp_path, "--corpus=npz: .*diseases and procedures", spec=spec)


def test_tweets_need_labels(tmp_path):
    (tmp_path / "t.tsv").write_text("no label here\nnor here\n")
    with pytest.raises(ValueError, match="--twitter"):
        run_lib.read_tweets(str(tmp_path / "t.tsv"))
    (tmp_path / "one.tsv").write_text("good\tnice day\ngood\tfine day\n")
    with pytest.raises(ValueError, match="only one label"):
        run_lib.read_tweets(str(tmp_path / "one.tsv"))
    with pytest.raises(ValueError, match="--twitter: .*none"):
        run_lib.read_tweets(str(tmp_path / "none.tsv"))


def test_other_settings_are_refused_and_named(tmp_path):
    out = str(tmp_path / "run")
    run_lib.begin(out, SPEC, **SETTINGS)
    with pytest.raises(ValueError, match="other settings: .*config.dim was 4, now 5"):
        run_lib.begin(out, SPEC, **(SETTINGS | {"changes": TINY | {"dim": 5}}))
    with pytest.raises(ValueError, match="other settings"):
        run_lib.begin(out, corpora.Spec(num_docs=270), **SETTINGS)


@pytest.mark.slow
def test_flags_that_are_wrong_end_with_one_line(tmp_path):
    wrong = {
        "--parts=table9": "--parts=table9: choose among table1",
        "--corpus=csv": "corpus",
    }
    start = lambda flag: processes.start("reproduce", flag, f"--out={tmp_path}/n")
    for process, said in [(start(flag), said) for flag, said in wrong.items()]:
        code, _, err = processes.finish(process)
        assert code == 1
        assert said in err
        assert "Traceback" not in err
    assert not (tmp_path / "n").exists()


# The page in a real browser.

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no chromium with its driver is installed"
)


@pytest.fixture(scope="module")
def browser(done):
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    folder = tempfile.mkdtemp()
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--window-size=1366,768",
        f"--user-data-dir={folder}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(60)
    driver.get("file://" + done[1])
    yield driver
    driver.quit()
    shutil.rmtree(folder, ignore_errors=True)


@needs_browser
@pytest.mark.slow
def test_page_loads_without_errors_and_fits_the_window(browser):
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []
    assert "Distilled Wasserstein" in browser.title
    width = "return document.documentElement.scrollWidth"
    assert browser.execute_script(width) <= 1366
    broken = "return [...document.images].filter((i) => !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    dots = "return document.querySelectorAll('#map .points path').length"
    assert browser.execute_script(dots) >= 81


@needs_browser
@pytest.mark.slow
def test_search_shows_nearest_codes_and_topics(browser, done):
    box = browser.find_element("id", "search")
    box.clear()
    box.send_keys("congestive")
    chosen = browser.find_element("id", "chosen-name").text
    assert chosen == "d_4280 · Congestive heart failure, unspecified"
    known = _json(done[0], "parts/explorer.json")
    n = [w["code"] for w in known["words"]].index("d_4280")
    near = browser.find_elements("css selector", "#nearest .text")
    shown = [element.text.split(" · ")[0] for element in near]
    assert shown == [known["words"][m]["code"] for m in known["near"][n][:8]]
    assert len(browser.find_elements("css selector", "#chosen-topics .bar")) == 3
    box.clear()
    box.send_keys("no such thing")
    assert browser.find_element("id", "search-status").text == "no such code"
    bar = browser.find_element("css selector", ".topic .bar")
    browser.execute_script("arguments[0].click()", bar)
    assert (
        bar.get_attribute("data-code") in browser.find_element("id", "chosen-name").text
    )


@needs_browser
@pytest.mark.slow
def test_two_admissions_give_the_plan_of_pot(browser, done):
    from selenium.webdriver.support.ui import Select

    known = _json(done[0], "parts/explorer.json")
    Select(browser.find_element("id", "pick-a")).select_by_value("2")
    Select(browser.find_element("id", "pick-b")).select_by_value("5")
    T = np.array(
        browser.execute_script("return document.getElementById('plan').data[0].z")
    )
    a, b = (sorted(known["admissions"][i]["words"]) for i in (2, 5))
    D = np.array(known["D"], float) / 1000
    assert T.shape == (len(a), len(b))
    np.testing.assert_allclose(T.sum(0), 1 / len(b), rtol=0.02)
    np.testing.assert_allclose(T.sum(1), 1 / len(a), rtol=0.02)
    want = ot.emd2([], [], np.ascontiguousarray(D[np.ix_(a, b)]))
    assert (T * D[np.ix_(a, b)]).sum() == pytest.approx(want, rel=0.02)
    said = browser.find_element("id", "plan-status").text
    assert float(re.search(r"costs ([\d.]+)", said)[1]) == pytest.approx(want, rel=0.02)
    cells = browser.execute_script(
        "return document.querySelectorAll('#plan .hm').length"
    )
    assert cells == 1
    # Ticking a code makes an admission of one's own.
    box = browser.find_element("css selector", "#ticks-a input:not(:checked)")
    browser.execute_script("arguments[0].click()", box)
    rows = browser.execute_script(
        "return document.getElementById('plan').data[0].z.length"
    )
    assert rows == len(a) + 1
    pick = Select(browser.find_element("id", "pick-a"))
    assert pick.first_selected_option.text == "made by ticking"
    errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    assert errors == []
