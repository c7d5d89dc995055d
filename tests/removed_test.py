"""Settings that are gone are named wherever they are given, with what to use."""

import json
from unittest import mock

import numpy as np
import pytest
from absl.testing import absltest, parameterized

from dwl_jax import Config, Hyper, Model, io, presets, removed, settings
from experiments import cli


class RemovedTest(parameterized.TestCase):
    def test_no_setting_is_both_there_and_gone(self):
        here = settings.config_to_json(Config())
        self.assertEmpty(set(here) & set(removed.FIELDS))
        for name, value in removed.VALUES:
            self.assertIn(name, here)
            with self.assertRaisesRegex(ValueError, "must be one of|was removed"):
                Config(**{name: value})

    @parameterized.parameters(
        ({"warm_start": True}, "Config.warm_start was removed; .* few cold"),
        ({"debias": False}, "Config.debias was removed"),
        ({"kernel": "fast"}, "Config.kernel 'fast' was removed; use 'auto'"),
        ({"optimizer_R": "yogi"}, "Config.optimizer_R 'yogi' was removed; use an"),
    )
    def test_callers_are_told(self, changes, match):
        with self.assertRaisesRegex(ValueError, match):
            Config(**changes)
        with self.assertRaisesRegex(ValueError, match):
            presets.default(**changes)

    def test_what_is_not_a_setting_is_still_a_type_error(self):
        with self.assertRaises(TypeError):
            Config(colour="red")

    @parameterized.parameters(
        (["--out=x", "--warm_start"], "warm_start was removed"),
        (["--nodebias"], "debias was removed"),
        (["--kernel=lowrank"], "'lowrank' was removed"),
        (["--kernel=plain", "--rank", "3"], "rank was removed"),
    )
    def test_flags_are_named(self, arguments, match):
        self.assertRegex(cli.removed_flag(arguments), match)

    def test_other_flags_are_let_through(self):
        self.assertIsNone(cli.removed_flag(["--kernel=log", "rank", "--out=memory"]))
        with mock.patch.object(cli.flags, "FLAGS", {"neighbours"}):  # of `inspect`
            self.assertIsNone(cli.removed_flag(["--neighbours=p_1"]))


@pytest.fixture
def saved(tmp_path):
    """A model of today at a path, and how to change its stored settings."""
    log_B = np.full((2, 3), -np.log(3.0), np.float32)
    cfg, path = Config(num_topics=2, dim=2), tmp_path / "model"
    model = Model(log_B, np.eye(3, 2, dtype=np.float32))
    io.save_model(path, model, cfg=cfg, hyper=Hyper(), vocab=["a", "b", "c"])

    def change(**config):
        file = path / "model.json"
        meta = json.loads(file.read_text())
        meta["config"] |= config
        file.write_text(json.dumps(meta))
        return path

    return cfg, change


def test_a_model_loads_if_what_is_gone_had_its_default(saved):
    cfg, change = saved
    defaults = {name: field.default for name, field in removed.FIELDS.items()}
    assert io.load_model(change(**defaults)).cfg == cfg


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"debias": True}, "debias was removed; use instead: nothing"),
        ({"rank": 16}, "rank was removed"),
        ({"kernel": "fast"}, "'fast' was removed; use 'auto', which is right"),
    ],
)
def test_a_model_with_a_removed_setting_is_refused_by_name(saved, setting, match):
    with pytest.raises(ValueError, match=match):
        io.load_model(saved[1](**setting))


if __name__ == "__main__":
    absltest.main()
