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
