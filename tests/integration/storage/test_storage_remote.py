from __future__ import annotations

import uuid

import obstore
import pytest
from obstore import exceptions

from servers.stores import free_ports
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError, StorageError


@pytest.fixture
def store(seaweedfs):
    return open_store(seaweedfs.url(str(uuid.uuid4())))


def test_a_put_that_won_but_lost_its_answer_is_ours(store, monkeypatch):
    """The client sends a put again when its answer is lost; the server then says that the object exists."""
    real = obstore.put

    def answer_lost(*args, **kwargs):
        real(*args, **kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(obstore, "put", answer_lost)
    assert store.create("a", b"one")
    assert not store.create("a", b"two")


def test_an_object_removed_while_create_compares_is_created_again(store, monkeypatch):
    store.create("a", b"old")
    real = obstore.get

    def removed(client, path):
        obstore.delete(client, path)
        return real(client, path)

    monkeypatch.setattr(obstore, "get", removed)
    assert store.create("a", b"new")
    monkeypatch.undo()
    assert store.read("a") == b"new"


def test_settings_in_the_url_survive_pickling_and_deeper_roots(store):
    assert store.at("x").url.partition("?")[2] == store.url.partition("?")[2] != ""


def test_a_large_object_goes_in_parts(store):
    data = bytes(6 * 2**20)
    store.write("large", data)
    assert store.read("large") == data
    assert store.read_range("large", len(data) - 3, 3) == bytes(3)


def test_a_missing_bucket_is_named(seaweedfs):
    with pytest.raises(StorageError, match="no such bucket; create it"):
        open_store(seaweedfs.url("x", bucket=f"none-{uuid.uuid4()}")).list()


def test_refused_credentials_are_named(seaweedfs, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError, match=r"could not read a at s3://tests/.*: the credentials"):
        open_store(seaweedfs.url(str(uuid.uuid4()))).read("a")


def test_a_missing_server_is_named(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    url = f"s3://tests/x?endpoint=http://127.0.0.1:{free_ports(1)[0]}&retry_s=0.1"
    for attempt in (
        lambda store: store.read("a"),
        lambda store: store.create("a", b""),
        lambda store: store.list(),
    ):
        with pytest.raises(StorageError, match="the server does not answer; check the endpoint"):
            attempt(open_store(url))


def test_other_answers_of_a_server_are_passed_on(store, monkeypatch):
    def fail(*_, **__):
        raise exceptions.GenericError("Generic S3 error: 507 out of room\nDebug source: ...")

    monkeypatch.setattr(obstore, "put", fail)
    with pytest.raises(StorageError, match=r"507 out of room$"):
        store.write("a", b"")


def test_secrets_in_a_url_are_refused():
    with pytest.raises(ConfigError, match="'secret_access_key' in a URL would show in logs"):
        open_store("s3://bucket/x?secret_access_key=123")


@pytest.mark.parametrize("url", ["s3:///prefix", "s3://bucket/x?endpiont=typo"])
def test_urls_that_cannot_work_are_refused(url):
    with pytest.raises(ConfigError, match="s3://"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "deeper"),
    [
        ("gs://bucket/prefix", "gs://bucket/prefix/deeper"),
        ("az://container/prefix?account_name=me", "az://container/prefix/deeper?account_name=me"),
    ],
)
def test_other_vendors_urls_open_without_contact(url, deeper, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "eA==")
    assert open_store(url).at("deeper").url == deeper
