"""Models that travel: what comes back is what was saved, and the rest is refused."""

import dataclasses
import functools
import io as std_io
import json
import os
import pathlib
import shutil
import struct
import zipfile

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dwl_jax import Config, Hyper, Model, embedding, infer, io, settings

VOCAB = ("d_1", "d_2", "p_1", "ünïcode", "w 5")
KINDS = ("disease", "disease", "procedure", "word", "word")
CFG = Config(num_topics=3, dim=4, batch_size=8, num_iters=4)


@functools.cache
def model(dtype="float32"):
    rng = np.random.default_rng(0)
    log_B = jax.nn.log_softmax(jnp.asarray(rng.normal(size=(3, 5)), dtype), axis=-1)
    return Model(log_B, jnp.asarray(rng.normal(size=(5, 4)), dtype))


def save(path, **changes):
    args = {"cfg": CFG, "hyper": Hyper(), "vocab": VOCAB, "kinds": KINDS} | changes
    io.save_model(path, args.pop("model", model()), **args)
    return path


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infer_gives_the_same_bits_after_loading(tmp_path, dtype):
    docs = np.array([[1, 0, 2, 0, 0], [0, 1, 0, 1, 1], [3, 1, 1, 1, 0]])
    hyper = Hyper(epsilon=np.float32(0.3), tau=0.7, rate_A=jnp.asarray(0.1, dtype))
    before = infer(docs, model(dtype), hyper, cfg=CFG, num_steps=20)
    save(tmp_path / "m", model=model(dtype), hyper=hyper)
    saved = io.load_model(tmp_path / "m")
    after = infer(docs, saved.model, saved.hyper, cfg=saved.cfg, num_steps=20)
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_everything_comes_back(tmp_path):
    texts = ("one", "", 'with "quotes"', "a\tb\nc", "🙂")
    save(tmp_path / "m", descriptions=texts, extra={"corpus": {"path": None}})
    saved = io.load_model(tmp_path / "m")
    assert (saved.vocab, saved.kinds, saved.descriptions) == (VOCAB, KINDS, texts)
    assert saved.cfg == CFG
    assert saved.hyper == Hyper()
    assert saved.extra == {"corpus": {"path": None}}
    assert saved.versions["jax"] == jax.__version__
    for got, want in zip(saved.model, model(), strict=True):
        np.testing.assert_array_equal(got, want)
    assert sorted(os.listdir(tmp_path)) == ["m"]  # nothing half written is left


MAPS = {
    "one_hot": embedding.one_hot,
    "linear": embedding.linear,
    "mlp(7)": embedding.mlp(7),
    "mlp(64)": embedding.mlp(64),
    "beside(35, 0.3)": embedding.beside(35, 0.3),
    "beside(7, 1.0)": embedding.beside(7, 1.0),
}


@pytest.mark.parametrize("name", [*MAPS])
def test_maps_of_the_package_travel(name):
    cfg = Config(embedding=MAPS[name], optimizer_A="sgd")
    stored = json.loads(json.dumps(settings.config_to_json(cfg)))
    assert stored["embedding"] == name
    assert settings.config_from_json(stored) == cfg


@pytest.mark.parametrize(
    "field, value",
    [
        ("loss", lambda y, log_y: jnp.sum(y * log_y, axis=-1)),
        ("optimizer_R", optax.scale_by_adam(b1=0.5)),
        ("embedding", embedding.EmbeddingMap(lambda *a: a, lambda *a: a, True)),
    ],
)
def test_code_of_the_caller_is_refused_by_name(tmp_path, field, value):
    cfg = dataclasses.replace(CFG, **{field: value})
    with pytest.raises(ValueError, match=f"Config.{field}"):
        save(tmp_path / "m", cfg=cfg)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"vocab": VOCAB[:4]}, "vocab must be 5"),
        ({"vocab": ("a", "a", "b", "c", "d")}, "distinct"),
        ({"kinds": ("fish",) * 5}, "kinds"),
        ({"cfg": dataclasses.replace(CFG, num_topics=4)}, "sizes of the config"),
        ({"hyper": Hyper(tau=np.array([0.5, 1.0]))}, "Hyper.tau"),
        ({"hyper": Hyper(epsilon=-1.0)}, "Hyper.epsilon"),
        ({"model": Model(model().log_B, model().X.at[0, 0].set(jnp.nan))}, "finite"),
        ({"model": Model(model().log_B + 1.0, model().X)}, "distributions"),
        ({"extra": {"x": float("nan")}}, "JSON"),
    ],
)
def test_what_is_wrong_is_not_saved(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match):
        save(tmp_path / "m", **changes)
    assert not os.listdir(tmp_path)


def test_only_a_model_is_replaced(tmp_path):
    save(tmp_path / "m")
    save(tmp_path / "m", extra={"second": True})
    assert io.load_model(tmp_path / "m").extra == {"second": True}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError):
        save(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").read_text() == "years of work"


# What a file from elsewhere may try. Each function spoils a good model at a path.


def edit_json(path, change):
    meta = json.loads((path / "model.json").read_text())
    change(meta)
    (path / "model.json").write_text(json.dumps(meta))


def set_key(key, value):
    return lambda path: edit_json(path, lambda meta: meta.update({key: value}))


def set_inner(key, inner, value):
    return lambda path: edit_json(path, lambda m: m[key].update({inner: value}))


def remake_arrays(path, arrays, *, npy=None, compress=zipfile.ZIP_STORED, also=()):
    """Writes arrays.npz anew, with members as given, and the checksum that fits it."""
    with zipfile.ZipFile(path / "arrays.npz", "w", compress) as archive:
        for name, x in arrays.items():
            stream = std_io.BytesIO()
            np.lib.format.write_array(stream, x, version=(1, 0), allow_pickle=True)
            archive.writestr(f"{name}.npy", stream.getvalue())
        for name, raw in (npy or {}).items():
            archive.writestr(name, raw)
        for name in also:
            archive.writestr(name, b"x")
    set_key("sha256", io.file_sha256(path / "arrays.npz"))(path)


def npy_header(shape, dtype="<f4", payload=b""):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + payload


def good():
    return {"log_B": np.asarray(model().log_B), "X": np.asarray(model().X)}


def huge(path):
    log_B = {"log_B": good()["log_B"]}
    raw = npy_header((5, 1 << 50))
    remake_arrays(path, log_B, npy={"X.npy": raw})
    set_inner("arrays", "X", {"shape": [5, 1 << 50], "dtype": "float32"})(path)


def link(name):
    def spoil(path):
        shutil.move(path / name, path.parent / "elsewhere")
        os.symlink(path.parent / "elsewhere", path / name)

    return spoil


def replace_bytes(name, raw):
    return lambda path: (path / name).write_bytes(raw)


X64 = {"log_B": good()["log_B"], "X": good()["X"].astype(np.float64)}
SPOILERS = {
    "no json": lambda p: os.remove(p / "model.json"),
    "no arrays": lambda p: os.remove(p / "arrays.npz"),
    "json is empty": replace_bytes("model.json", b""),
    "json is binary": replace_bytes("model.json", bytes(range(256))),
    "json is a list": replace_bytes("model.json", b"[]"),
    "json is deep": replace_bytes("model.json", b"[" * 100_000),
    "json has NaN": set_inner("hyper", "tau", float("nan")),
    "json is a folder": lambda p: (
        os.remove(p / "model.json"),
        (p / "model.json").mkdir(),
    ),
    "json is a link": link("model.json"),
    "arrays is a link": link("arrays.npz"),
    "another format": set_key("format", "dwl_jax.model/2"),
    "no words": set_key("vocab", []),
    "words are numbers": set_key("vocab", [1, 2, 3, 4, 5]),
    "a word twice": set_key("vocab", ["a", "a", "b", "c", "d"]),
    "kinds of fish": set_key("kinds", ["fish"] * 5),
    "no descriptions": lambda p: edit_json(p, lambda m: m.pop("descriptions")),
    "config is a list": set_key("config", []),
    "unknown setting": set_inner("config", "exec", "rm"),
    "setting of a type": set_inner("config", "num_iters", "10"),
    "endless loop": set_inner("config", "num_iters", 10**12),
    "other sizes": set_inner("config", "num_topics", 4),
    "own loss": set_inner("config", "loss", "os.system"),
    "a map with code": set_inner("config", "embedding", "mlp(__import__)"),
    "a map of no number": set_inner("config", "embedding", "beside(3, nan)"),
    "epsilon of 0": set_inner("hyper", "epsilon", 0.0),
    "tau is a text": set_inner("hyper", "tau", "0.5"),
    "tau is an object": set_inner("hyper", "tau", {"value": 0.5, "dtype": "object"}),
    "checksum": set_key("sha256", "0" * 64),
    "arrays are no zip": lambda p: (
        replace_bytes("arrays.npz", b"x" * 100)(p),
        set_key("sha256", io.file_sha256(p / "arrays.npz"))(p),
    ),
    "a member lacks": lambda p: remake_arrays(p, {"X": good()["X"]}),
    "a member more": lambda p: remake_arrays(p, good(), also=["evil.npy"]),
    "a path upward": lambda p: remake_arrays(p, good(), also=["../../evil.py"]),
    "a member twice": lambda p: remake_arrays(p, good(), also=["X.npy"]),
    "compressed": lambda p: remake_arrays(p, good(), compress=zipfile.ZIP_DEFLATED),
    "pickled": lambda p: remake_arrays(p, good() | {"X": np.array([{}], object)}),
    "other dtype": lambda p: remake_arrays(p, X64),
    "other shape": lambda p: remake_arrays(p, good() | {"X": good()["X"].T.copy()}),
    "fortran": lambda p: remake_arrays(
        p, good() | {"X": np.asfortranarray(good()["X"])}
    ),
    "huge": huge,
    "header alone": lambda p: remake_arrays(
        p, {"log_B": good()["log_B"]}, npy={"X.npy": npy_header((5, 4))}
    ),
    "negative shape": lambda p: remake_arrays(
        p, {"log_B": good()["log_B"]}, npy={"X.npy": npy_header((-5, -4))}
    ),
    "NaN embeddings": lambda p: remake_arrays(p, good() | {"X": good()["X"] * np.nan}),
    "no distributions": lambda p: remake_arrays(
        p, good() | {"log_B": good()["log_B"] * 9}
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", SPOILERS)
def test_a_spoiled_model_is_refused(tmp_path, name):
    path = save(tmp_path / "m")
    SPOILERS[name](pathlib.Path(path))
    with pytest.raises(ValueError, match="m: "):
        io.load_model(path)


def test_an_arrays_file_remade_as_it_was_is_read(tmp_path):
    """The helper that spoils is not itself the reason for the refusals above."""
    path = save(tmp_path / "m")
    remake_arrays(path, good())
    np.testing.assert_array_equal(io.load_model(path).model.X, model().X)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=st.data())
def test_a_flipped_byte_is_refused_or_harmless(tmp_path_factory, data):
    path = save(tmp_path_factory.mktemp("flip") / "m")
    file = path / data.draw(st.sampled_from(["model.json", "arrays.npz"]))
    raw = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    file.write_bytes(raw)
    try:
        saved = io.load_model(path)
    except ValueError:
        return
    assert file.name == "model.json"
    for got, want in zip(saved.model, model(), strict=True):
        np.testing.assert_array_equal(got, want)
