import os

import pytest

from cutting_proxy import CuttingProxy
from fake_stripe import FakeStripe
from gateway import Certificate, Gateway

# A proxy in the environment is for the outside; everything here is on this machine.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"


@pytest.fixture
def fake():
    fake = FakeStripe()
    yield fake
    fake.close()


@pytest.fixture
def gateway(fake, tmp_path):
    gateway = Gateway(fake.url, tmp_path)
    yield gateway
    gateway.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    return Certificate.make(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def tls_gateway(fake, tmp_path, certificate):
    gateway = Gateway(fake.url, tmp_path, certificate=certificate)
    yield gateway
    gateway.close()


@pytest.fixture
def proxy(gateway):
    proxy = CuttingProxy(gateway.url)
    yield proxy
    proxy.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that fails shows what the gateway said."""
    report = yield
    used = getattr(item, "funcargs", {})
    for gateway in filter(None, (used.get("gateway"), used.get("tls_gateway"))):
        if report.failed:
            report.sections.append(("gateway log", gateway.log.read_text()[-5000:]))
    return report
