"""A Service with an address of its own: what comes to its ports goes on to the same ports of a pod. TARGET PORT..."""

import socket
import sys
import threading


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


def serve(listener: socket.socket, target: "tuple[str, int]") -> None:
    while True:
        client, _ = listener.accept()
        try:
            pod = socket.create_connection(target)
        except OSError:  # nothing listens there yet
            client.close()
            continue
        for pair in ((client, pod), (pod, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def main(target: str, *ports: str) -> None:
    listeners = [(int(port), socket.create_server(("", int(port)), backlog=128)) for port in ports]
    print("ready", flush=True)
    for port, listener in listeners:
        threading.Thread(target=serve, args=(listener, (target, port)), daemon=True).start()
    threading.Event().wait()


main(*sys.argv[1:])
