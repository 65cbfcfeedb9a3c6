import pytest

from database import SLOW_COMMIT, Server
from programs import LANGUAGES
from proxy import Proxy


@pytest.fixture(scope="session")
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def empty_database(server):
    database = server.database()
    yield database
    server.drop(database)


@pytest.fixture
def database(empty_database):
    empty_database.fill()
    return empty_database


@pytest.fixture
def slow_database(database):
    """One whose COMMIT can be stopped."""
    with database.owner() as owner:
        owner.execute(SLOW_COMMIT)
    return database


@pytest.fixture
def proxy(database, request):
    proxy = Proxy(database.address, request.param)
    yield proxy
    proxy.close()


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def language(request):
    return request.param
