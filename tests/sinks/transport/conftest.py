import pytest

from tests.certificates import Authority
from tests.sinks.transport.peers import WAYS, Certificates, way_of


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(Authority(tmp_path_factory.mktemp("authority")))


@pytest.fixture(params=WAYS)
def way(request):
    return way_of(request.param)
