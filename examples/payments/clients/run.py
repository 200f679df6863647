"""Real clients against the payments service, which is killed after the effect and before the answer.

run.py SERVICE MODULES: SERVICE is the built example, MODULES the folder node_modules with what package.json names. Run
it with a Python that has what requirements.txt names. Everything is on the loopback interface. Exits with 1 if a
client did not end with one result, or if the ledger shows something else than was promised.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
LIMIT = 60  # seconds, for each thing that is waited for
CLIENTS = [
    ("stripe-python", [sys.executable, str(HERE / "stripe_python.py")], "pi_"),
    ("stripe-node", ["node", str(HERE / "stripe_node.cjs")], "pi_"),
    ("svix-node", ["node", str(HERE / "svix_node.cjs")], "msg_"),
]


def free_port():
    """Below the ports of outgoing connections, so that no client takes it while the service is down."""
    for port in range(20000, 30000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise SystemExit("no port is free")


def wait_for(what, found):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if found():
            return
        time.sleep(0.01)
    raise SystemExit(f"{what} did not come within {LIMIT} s")


class Service:
    def __init__(self, binary, folder, port):
        self.binary, self.folder, self.port = binary, folder, port
        self.said, self.ledger = folder / "said", folder / "ledger"
        self.process = None

    def start(self, pause):
        """`pause`: milliseconds between an effect and its answer."""
        starts = self.starts()
        command = [self.binary, "serve", "--store", self.folder / "store", "--ledger", self.ledger]
        command += ["--address", f"127.0.0.1:{self.port}", "--pause", str(pause), "--show-requests"]
        with self.said.open("a") as said:
            self.process = subprocess.Popen(command, stdout=said)
        wait_for("the service", lambda: self.starts() > starts)

    def starts(self):
        return self.said.read_text().count("listening on") if self.said.exists() else 0

    def keys(self):
        """Of all requests, replays included."""
        return [line.split(" ")[2] for line in self.said.read_text().splitlines() if line.startswith("request ")]

    def effects(self):
        """(key, token, attempt) of each."""
        lines = [line.split(" ") for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []
        return [(key, int(token), int(attempt)) for key, token, attempt in lines]

    def end(self, how):
        self.process.send_signal(how)
        return self.process.wait(LIMIT)


def run(name, command, prefix, binary, modules, folder):
    service = Service(binary, folder, free_port())
    env = dict(os.environ, SERVICE=f"http://127.0.0.1:{service.port}", NODE_PATH=str(modules), NO_PROXY="127.0.0.1")
    client = None
    try:
        service.start(pause=10 * LIMIT * 1000)
        client = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        wait_for(f"{name}: the effect", lambda: service.effects() or client.poll() is not None)
        assert service.effects(), f"{name} ended with {client.returncode} and asked for nothing"
        service.end(signal.SIGKILL)
        service.start(pause=0)
        results = client.communicate(timeout=LIMIT)[0].split()
        assert client.returncode == 0, f"{name} ended with {client.returncode}"
        assert service.end(signal.SIGINT) == 0, f"{name}: the service did not end well"
    finally:
        for process in (client, service.process):
            if process is not None and process.poll() is None:
                process.kill()
    keys, effects = service.keys(), service.effects()
    assert len(results) == 1, f"{name} ended with the results {results}"
    assert len(keys) >= 2, f"{name} did not try again: {keys}"
    assert len(set(keys)) == 1 and keys[0], f"{name} did not keep its key: {keys}"
    assert [key for key, _, _ in effects] == [keys[0]] * 2, f"{name}: two effects were to be there: {effects}"
    assert [attempt for _, _, attempt in effects] == [1, 2], f"P4: {name}: the second was not announced: {effects}"
    assert effects[0][1] < effects[1][1], f"P2: {name}: the second has an older token: {effects}"
    assert results[0] == f"{prefix}{effects[1][1]}", f"P3: {name} was told {results}, not the last of {effects}"
    print(f"{name:<14} key {keys[0]:<54} requests {len(keys)}  effects {len(effects)}  result {results[0]}")


def main():
    binary, modules = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    for name, command, prefix in CLIENTS:
        with tempfile.TemporaryDirectory() as folder:
            run(name, command, prefix, binary, modules, pathlib.Path(folder))
    print(f"clients: {len(CLIENTS)}")


if __name__ == "__main__":
    main()
