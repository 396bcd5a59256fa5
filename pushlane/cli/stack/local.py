"""Runs Pulsar on a local Java and a redis-server, as detached processes.

Settings and data are its own, in the run folder; the distribution is only read.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pushlane.cli.stack import tools
from pushlane.cli.stack.free_ports import free_port
from pushlane.cli.stack.processes import Processes
from pushlane.cli.stack.values import ENVIRONMENT, HOST, OnStep, Ports, conf_lines


class LocalWay(Processes):
    """The stack as processes; see `cli.stack`.

    Services listen at `bind` and give `HOST` as the broker's address: another one is for whoever
    puts a proxy between. `broker_settings` are lines for standalone.conf.
    """

    name = "local"

    def __init__(
        self,
        run_dir: Path,
        cache_dir: Path,
        *,
        bind: str = HOST,
        broker_settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(run_dir)
        self._cache_dir = cache_dir
        self._bind = bind
        self._broker_settings = broker_settings or {}

    def start(self, ports: Ports, on_step: OnStep) -> None:
        self.start_redis(ports, on_step)
        self.start_pulsar(ports, on_step)

    def start_redis(self, ports: Ports, on_step: OnStep, name: str = "redis") -> None:
        server = tools.redis_server()
        on_step(f"starting redis-server on port {ports.redis}")
        folder = self._folder(name)
        options = {
            "--bind": self._bind,
            "--port": str(ports.redis),
            "--dir": str(folder),
            "--appendonly": "yes",
            "--save": "",
        }
        argv = [server, *(word for option in options.items() for word in option)]
        self.launch(name, argv, {}, folder)

    def start_pulsar(self, ports: Ports, on_step: OnStep) -> None:
        tools.check_java()
        home = tools.pulsar_home(self._cache_dir, on_step)
        on_step(
            f"starting Pulsar on ports {ports.broker} and {ports.admin} "
            "(without fsync of its journal, as standalone does)"
        )
        folder = self._folder("pulsar")
        conf = folder / "standalone.conf"
        shutil.copyfile(home / "conf" / "standalone.conf", conf)
        with conf.open("a") as end:
            end.write(conf_lines(ports, bind=self._bind))
            end.write("".join(f"{k}={v}\n" for k, v in self._broker_settings.items()))
        options = {
            "--config": str(conf),
            "--advertised-address": HOST,
            "--metadata-dir": str(folder / "metadata"),
            "--bookkeeper-dir": str(folder / "bookkeeper"),
            "--bookkeeper-port": str(_bookie_port(folder)),
        }
        words = [word for option in options.items() for word in option]
        argv = [str(home / "bin" / "pulsar"), "standalone", "-nfw", "-nss", *words]
        env = {
            **ENVIRONMENT,
            "PULSAR_STANDALONE_CONF": str(conf),
            "PULSAR_LOG_DIR": str(folder / "logs"),
        }
        self.launch("pulsar", argv, env, folder)

    def stop(self, *, delete_data: bool) -> None:
        for service in ("pulsar", "redis"):
            self.end(service)
            if delete_data:
                shutil.rmtree(self._run_dir / service, ignore_errors=True)

    def _folder(self, service: str) -> Path:
        folder = self._run_dir / service
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _bookie_port(folder: Path) -> int:
    """The same at every start: the stored messages know their storage by its port."""
    kept = folder / "bookie-port"
    if not kept.exists():
        kept.write_text(str(free_port()))
    return int(kept.read_text())
