"""The container files, as far as they can be judged without containers."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from accord.api.auth.deployment import DeploymentError, write_secrets
from accord.learner.embedded import EmbeddedServer
from accord.learner.service.loop import LearnerService
from accord.learner.service.settings import LearnerSettings
from accord.learner.store import Store
from accord.learner.store.acl import RedisRole

ROOT = Path(__file__).parent.parent.parent
DOCKERFILES = ("Dockerfile", "engine.Dockerfile")


def text(name: str) -> str:
    """A file of the folder."""
    return (ROOT / "docker" / name).read_text()


@pytest.fixture
def healthcheck() -> ModuleType:
    """The script of the image's health check."""
    spec = importlib.util.spec_from_file_location("accord_healthcheck", ROOT / "docker" / "healthcheck.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", DOCKERFILES)
def test_everything_that_is_copied_is_sent(name: str) -> None:
    """What a Dockerfile copies from the checkout is there, and the ignore file lets it through."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text(name), re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed, source


def test_the_pinned_versions_satisfy_the_distribution() -> None:
    """Every dependency of the service is pinned exactly, and within accord's own bounds."""
    requirements = pytest.importorskip("packaging.requirements")
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", text("constraints.txt"), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for line in [*project["dependencies"], *extras["learner"], *extras["api"]]:
        wanted = requirements.Requirement(line)
        assert wanted.specifier.contains(pins[wanted.name], prereleases=True), line


def test_nobody_is_root() -> None:
    """The service runs as a numbered user, with a health check."""
    assert re.search(r"^USER [1-9][0-9]*:[1-9][0-9]*$", text("Dockerfile"), re.MULTILINE)
    assert "HEALTHCHECK" in text("Dockerfile")


def test_compose() -> None:
    """Ports are published on loopback unless told otherwise, every service has a health check, and Redis keeps all."""
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the compose file")
    services = yaml.safe_load(text("compose.yaml"))["services"]
    assert set(services) == {"redis", "learner", "api", "engine", "prometheus", "grafana"}
    for name, service in services.items():
        assert service["healthcheck"]["test"], name
        variable = "ACCORD_OBSERVE_PUBLISH" if name in ("prometheus", "grafana") else "ACCORD_PUBLISH"
        assert all(port.startswith(f"${{{variable}:-127.0.0.1}}:") for port in service.get("ports", [])), name
    directives = {tuple(line.split()) for line in text("redis/redis.conf").splitlines()}
    assert {("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("dir", "/data")} <= directives
    assert ("aclfile", "/etc/accord/users.acl") in directives
    mounted = [volume.split(":")[:2] for volume in services["redis"]["volumes"]]
    assert ["./secrets/redis/users.acl", "/etc/accord/users.acl"] in mounted
    assert ["./redis/redis.conf", services["redis"]["command"][1]] in mounted
    assert "ports" not in services["learner"]
    assert "container_name" not in services["learner"]
    assert services["engine"]["profiles"] == ["gpu"]


def test_compose_uses_the_secrets(tmp_path: Path) -> None:
    """Whatever compose reads from docker/secrets is what `accord secrets` writes, and only containers may read it."""
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the compose file")
    services = yaml.safe_load(text("compose.yaml"))["services"]
    folder = tmp_path / "secrets"
    written = {str(path.relative_to(folder)) for path in write_secrets(folder)}
    for service in services.values():
        assert {name.removeprefix("secrets/") for name in service.get("env_file", [])} <= written
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("./secrets/"):
                assert (folder / source.removeprefix("./secrets/")).exists(), volume
                assert volume.endswith(":ro")
    assert services["api"]["environment"]["ACCORD_API_TOKENS_FILE"] == "/run/accord/tokens"
    assert folder.stat().st_mode & 0o777 == 0o700
    private = {"viewer.token", "operator.token", "redis-admin.password", "host.env"} | {f"{r}.env" for r in RedisRole}
    for name in written:
        assert (folder / name).stat().st_mode & 0o777 == (0o600 if name in private else 0o644), name
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_secrets_are_never_overwritten(tmp_path: Path) -> None:
    """A folder that holds something is left as it is."""
    folder = tmp_path / "secrets"
    write_secrets(folder)
    before = (folder / "operator.token").read_text()
    with pytest.raises(DeploymentError, match="already"):
        write_secrets(folder)
    assert (folder / "operator.token").read_text() == before


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["accord", "api", "--port", "9000"], "9000"),
        (["accord", "api", "--port=9001"], "9001"),
        (["accord", "api"], None),
    ],
)
def test_the_health_check_reads_the_command_line(healthcheck: ModuleType, words: list[str], found: str | None) -> None:
    """Options of the first process are found in both spellings."""
    assert healthcheck._option(words, "--port") == found


def test_the_learner_is_healthy_while_it_is_announced(
    healthcheck: ModuleType, server: EmbeddedServer, store: Store
) -> None:
    """The check of a learner's container succeeds from its first pass until it has left, and fails before and after."""
    words = ["accord", "learner", "--redis-url", server.url]
    assert healthcheck._learner(words)[0] is False
    service = LearnerService(LearnerSettings(redis_url=server.url))
    service.cycle()
    assert healthcheck._learner(words)[0] is True
    service.membership.leave()
    service.store.close()
    assert healthcheck._learner(words)[0] is False
