"""`keras-posenc rollback`."""

import json

import pytest

pytestmark = pytest.mark.tensorflow


class TestRollback:
    @pytest.fixture
    def base(self, tmp_path):
        for version in (1, 2):
            (tmp_path / str(version)).mkdir()
            file = tmp_path / str(version) / "saved_model.pb"
            file.write_text(f"model {version}")
        return tmp_path

    def test_older_version_goes_out_again(self, cli, base):
        result = cli("rollback", base, 1)
        assert result.code == 1
        assert "Version 1 cannot be published again: " in result.err
        assert "--no-verify" in result.err
        assert "Loading version 1 in a fresh process ..." in result.err
        assert not (base / "3").exists()
        result = cli("rollback", base, 1, "--no-verify")
        assert result.code == 0, result.err
        assert result.out == f"{base / '3'}: version 1 again\n"
        assert (base / "3" / "saved_model.pb").read_text() == "model 1"
        result = cli("rollback", base, 2, "--no-verify", "--json")
        assert json.loads(result.out) == {"path": str(base / "4"), "of": 2}

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("{base}", 7), "`version` must be one that"),
            (("{base}", 2), "Version 2 is the newest"),
            (("{base}", "old"), "invalid int value"),
            (("{base}/none", 1), "does not exist"),
            (("{base}",), "the following arguments are required: VERSION"),
        ],
    )
    def test_nothing_to_go_back_to(self, cli, base, arguments, reason):
        arguments = [str(argument).format(base=base) for argument in arguments]
        result = cli("rollback", *arguments)
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]
        assert sorted(path.name for path in base.iterdir()) == ["1", "2"]
