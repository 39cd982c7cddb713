"""The choice of the etcd that tests run."""

from __future__ import annotations

from servers import etcd_binary


def test_without_go_the_packaged_etcd_is_used_and_the_reason_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(etcd_binary, "_CACHE", tmp_path)
    monkeypatch.setattr(etcd_binary.shutil, "which", lambda name: None)
    found = etcd_binary.etcd_binary.__wrapped__()
    assert found.is_file()
    assert "no `go`" in capsys.readouterr().err
