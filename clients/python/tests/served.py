"""A server of its own for a test or a benchmark: the executable that LANEWAY_BIN names."""

import os
import signal
import subprocess

# One that ends as it should does so long before.
STOP_SECONDS = 60


class Server:
    """`laneway serve` at `door` (shm), and at ports that the kernel chooses (TCP, UDP)."""

    def __init__(self, door, *flags):
        binary = os.environ.get("LANEWAY_BIN")
        if not binary:
            raise RuntimeError("LANEWAY_BIN names no server: set it to a built laneway")
        self.door = str(door)
        places = ["-l", "127.0.0.1", "-p", "-1", "--udp-base", "-1", "--shm", self.door]
        self.command = [binary, "serve", *places, *flags]
        # A server takes every variable that begins so for a flag of its own.
        variables = os.environ.items()
        self.environment = {n: value for n, value in variables if not n.startswith("LANEWAY_")}
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        while "ready on " not in said:
            line = self.process.stderr.readline()
            said += line
            if not line:
                raise RuntimeError(f"the server ended with {self.process.wait()}: {said}")
        place = said.split("ready on ")[1].split(";")[0].split(", ")[0]
        host, port = place.rsplit(":", 1)
        self.address = (host, int(port))

    @property
    def pid(self):
        return self.process.pid

    def send(self, number):
        self.process.send_signal(number)

    def pause(self):
        """Stops all of its threads, until SIGCONT. A signal alone says nothing of when."""
        self.send(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def kill(self):
        self.send(signal.SIGKILL)
        self.end()

    def end(self):
        """Waits for the end; its status."""
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.stderr.close()

    def stop(self):
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        return self.end()
