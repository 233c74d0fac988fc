"""SSH server of the job on every node, for launchers that reach the other nodes by ssh: mpirun, and DeepSpeed's launchers on node 0.

Keys: the keys of the platform or the image, if they give one node access to another (Volcano's ssh plugin mounts such keys). Otherwise
node 0 makes a key for this run. The muster passes its public key to the other nodes, and the public host keys of all nodes to node 0. So
only members of the muster get access, and only they are trusted. Private keys stay on their node, in a folder that is removed at the end.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from ranklaunch.adapters.launchers.shared.base import Launcher, Need, address, common_env, in_attempt
from ranklaunch.adapters.launchers.shared.variables import RUN_DIR, misleading
from ranklaunch.env import parse
from ranklaunch.env.job import Job
from ranklaunch.env.reader import Reader, Variable
from ranklaunch.env.settings import WAIT_S
from ranklaunch.errors import WaitError
from ranklaunch.files import join, which
from ranklaunch.plan.model import File, Process, Wait
from ranklaunch.render.templates import Templates

PORT = Variable(
    "sshd_port", ("RANKLAUNCH_SSHD_PORT", "MY_SSHD_PORT"), parse.port, 36666, "port of the job's own sshd on every node",
    option="--sshd-port",
)  # fmt: skip
KEYS = Variable(
    "ssh_keys", ("RANKLAUNCH_SSH_KEYS",), parse.text, "",
    "folder with a private key and the authorized_keys that accept it, or new for a key of this run",
    default_text="~/.ssh or /root/.ssh if such keys are there, else new",
)  # fmt: skip

TEMPORARY = Variable(
    "temporary",
    ("OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base", "OMPI_MCA_orte_remote_tmpdir_base", "TMPDIR", "TEMP", "TMP"),
    parse.text, "/tmp",
    "folders where Open MPI 4 may keep the files of its daemons; ranklaunch removes the files of daemons that it has killed",
    set_by="image",
)  # fmt: skip

REMOTE_SHELL = Variable(
    "remote_shell", ("RANKLAUNCH_REMOTE_SHELL",), parse.OneOf("ssh", "blaunch", "pbs_tmrsh"), "ssh",
    "command that reaches the other nodes: ssh (with the job's own sshd on each), or LSF's blaunch or PBS's pbs_tmrsh (without sshd)",
)  # fmt: skip

VARIABLES = (PORT, KEYS, RUN_DIR, TEMPORARY, REMOTE_SHELL)

NAME = "sshd"
TAKEN = " failed: Address already in use"  # sshd then serves only the other address family, if its port is free
NEW = "new"
PRIVATE_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
USER_KEY, HOST_KEY = "ssh user key", "ssh host key"  # names of the values that nodes exchange
# Programs between sshd and a rank: sessions, the account's shell, and the daemons of Open MPI 4, Open MPI 5 and MPICH.
CARRIERS = ("sshd", "sshd-session", "sshd-auth", "sh", "bash", "dash", "orted", "prted", "hydra_pmi_proxy")


def reached(job: Job, reader: Reader, templates: Templates, behaviour: str = NAME) -> dict[str, Any]:
    """Return the fields of a plan for the sshd of this node, and on node 0 those for the ssh client.

    For another remote shell: only the private folder of node 0. behaviour: NAME of the sshd's launcher class.
    """
    if not by_ssh(reader):
        return {} if job.node_index else {"private": private_folder(job, reader)}
    account = reader.account
    if not account.name:
        reader.problem("sshd and ssh need a user name, and this user id has none in /etc/passwd: run the container as a user with a name")
    if account.shell.endswith(("/nologin", "/false")):
        reader.problem(
            f"sshd runs commands by the account's login shell, and that of {account.name} is {account.shell}, which ends every session: "
            f"set a shell in the image (usermod -s /bin/sh {account.name}), or run the container as another user"
        )
    port, private = reader.get(PORT), private_folder(job, reader)
    host_key, user_key = join(private, "host_key"), join(private, "key")
    folder, key = _existing_keys(reader)
    files = [*_sshd(job, reader, templates, port, folder)]
    steps = [_keygen(job, reader, "host key", host_key)]
    offers = {HOST_KEY: f"{host_key}.pub"}
    if job.node_index == 0:
        files += _client(job, reader, templates, user_key)
        if folder:
            files.append(File(user_key, "", source=join(folder, key)))
        else:
            steps.append(_keygen(job, reader, "user key", user_key))
            offers[USER_KEY] = f"{user_key}.pub"
    if account.root:  # folder for sshd's privilege separation; images in which no sshd runs may lack it
        steps.insert(0, _step(job, reader, "privilege separation", ("install", "-d", "-m", "0755", "/run/sshd")))
    service = _service(job, reader, templates, files[0].path, behaviour)
    return {"files": tuple(files), "prepare": tuple(steps), "services": (service,), "offers": offers, "private": private}


def _sshd(job: Job, reader: Reader, templates: Templates, port: int, folder: str) -> tuple[File, File]:
    """Return the server's configuration and its authorized_keys: those of the folder, or node 0's key for this run if folder is ""."""
    private = private_folder(job, reader)
    config, authorized = join(private, "sshd_config"), join(private, "authorized_keys")
    text = templates.text(
        "ssh/sshd_config.j2", port=port, host_key=join(private, "host_key"), authorized_keys=authorized, account=reader.account,
        # all addresses, or the node's loopback address if the nodes are simulated on one machine
        listen=(job.node.host,) if job.node.host.startswith("127.") else (), most_starting=max(200, 2 * len(job.nodes)),
    )  # fmt: skip
    if folder:
        return File(config, text), File(authorized, "", source=join(folder, "authorized_keys"))
    key = reader.shared(0, USER_KEY) or "# node 0's key, which it makes for this run"
    return File(config, text), File(authorized, f"{key}\n")


def client_config(job: Job, reader: Reader) -> str:
    """Return the path of the ssh client's configuration on node 0."""
    return join(private_folder(job, reader), "ssh_config")


def program(job: Job, reader: Reader) -> str:
    """Return the path of the script that node 0 starts instead of ssh."""
    return join(private_folder(job, reader), "ssh")


# Remote shells of batch systems: a variable of the batch system that the program needs, and the line that starts it. The script drops ssh's
# options; the next word is the host, the rest a command for a shell. blaunch itself passes the command to a shell.
_SHELLS = {
    "blaunch": ("LSB_JOBID", 'exec blaunch "$host" "$@"'),
    "pbs_tmrsh": ("PBS_NODEFILE", 'exec pbs_tmrsh "$host" /bin/sh -c "$*"'),
}
_IN_PLACE_OF_SSH = """#!/bin/sh
while :; do
  case $1 in
    -[BbcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host=$1
shift
{}
"""


def by_ssh(reader: Reader) -> bool:
    return reader.get(REMOTE_SHELL) == "ssh"


def other_shell(job: Job, reader: Reader) -> File:
    """Return a script that takes ssh's command line and calls the other remote shell, for launchers that start ssh themselves."""
    shell = reader.get(REMOTE_SHELL)
    variable, line = _SHELLS[shell]
    if job.node_index == 0 and not reader.env.get(variable):
        reader.problem(
            f"{reader.described(REMOTE_SHELL)}: {shell} needs {variable}, which node 0 does not have here: start the job by the batch "
            "system, or use ssh"
        )
    return File(program(job, reader), _IN_PLACE_OF_SSH.format(line), "0700")


def waits(job: Job, reader: Reader, *, for_sshd: bool) -> tuple[Wait, ...]:
    """Return the waits for the names of all nodes and, if for_sshd, for their sshd, which starts after the muster."""
    limit = reader.get(WAIT_S)
    hosts = Wait("hosts", ",".join(node.host for node in job.nodes), limit)
    if not for_sshd:
        return (hosts,)
    return hosts, Wait("port", ",".join(f"{address(reader.address_of(node.host))}:{reader.get(PORT)}" for node in job.nodes), limit)


def private_folder(job: Job, reader: Reader) -> str:
    """Return the path of this run's private folder.

    It is not below the log directory, which platforms copy to places with other readers. A digest of the log directory is in the name, so
    that two jobs with the same name have different folders.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", job.name)[:80]
    folder = reader.absolute(reader.get(RUN_DIR))
    if re.search(r"\s", folder):
        reader.problem(
            f"{reader.described(RUN_DIR)}: expected a folder without spaces: launchers would take the part after a space for another option"
        )
    logs = hashlib.sha256(job.log_dir.encode(errors="surrogateescape")).hexdigest()[:8]
    return join(folder, f"ranklaunch-{name}-{job.attempt}-{job.node_index}-{logs}")


def _existing_keys(reader: Reader) -> tuple[str, str]:
    """Return the folder and the name of the private key of the user's, platform's or image's keys; ("", "") if there are none."""
    folder_of_user = reader.get(KEYS)
    if folder_of_user == NEW:
        return "", ""
    for folder in [folder_of_user] if folder_of_user else dict.fromkeys((join(reader.account.home, ".ssh"), "/root/.ssh")):
        authorized = reader.text(join(folder, "authorized_keys"))
        key = _accepted_key(reader, folder, authorized)
        if key:
            digest = hashlib.sha256(authorized.encode()).hexdigest()[:12]
            # The muster compares the digest: the keys must be the same on every node.
            reader.note(KEYS, f"{folder} ({digest})", KEYS.name if folder_of_user else "files")
            return folder, key
    if folder_of_user:
        reader.problem(
            f"{reader.source(KEYS)}={folder_of_user}: expected authorized_keys there, and a private key ({', '.join(PRIVATE_KEYS)}) that "
            "it accepts; this user must be able to read both"
        )
    else:
        reader.note(KEYS, NEW, "default")
    return "", ""


def _accepted_key(reader: Reader, folder: str, authorized: str) -> str:
    """Return the name of a private key that the folder's authorized_keys accepts, "" if there is none.

    authorized: text of authorized_keys. A private key without a public key beside it is taken as accepted.
    """
    for name in PRIVATE_KEYS if authorized else ():
        public = reader.text(join(folder, f"{name}.pub")).split()
        is_accepted = len(public) < 2 or public[1] in authorized
        if reader.files.exists(join(folder, name)) and is_accepted and not _is_unreadable(reader, folder, name):
            return name
    if not authorized:
        _is_unreadable(reader, folder, "authorized_keys")
    return ""


def _is_unreadable(reader: Reader, folder: str, name: str) -> bool:
    """Return True for a file that this user cannot read, and warn: container engines mount keys for root only, or with another owner."""
    path = join(folder, name)
    is_unreadable = reader.files.exists(path) and not reader.text(path)
    if is_unreadable:
        reader.warn(f"{path} exists, but this user cannot read it: the keys of that folder are not used; make it readable for this user")
    return is_unreadable


def sessions(reader: Reader) -> tuple[str, ...]:
    """Return path patterns of session folders, in which the daemons of Open MPI 4 keep their files."""
    places = [TEMPORARY.default, *(candidate.value for candidate in reader.candidates(TEMPORARY))]
    return tuple(join(place, "ompi.{host}.{uid}") for place in dict.fromkeys(places))


def _client(job: Job, reader: Reader, templates: Templates, key: str) -> list[File]:
    known_hosts, port = join(private_folder(job, reader), "known_hosts"), reader.get(PORT)
    named = [(name, reader.shared(n.index, HOST_KEY)) for n in job.nodes for name in dict.fromkeys((n.host, reader.address_of(n.host)))]
    config = templates.text("ssh/ssh_config.j2", port=port, account=reader.account, key=key, known_hosts=known_hosts)
    return [
        File(client_config(job, reader), config),
        File(known_hosts, templates.text("ssh/known_hosts.j2", port=port, keys=[(name, text) for name, text in named if text])),
    ]


def _service(job: Job, reader: Reader, templates: Templates, config: str, behaviour: str) -> Process:
    # sshd executes itself again for each connection, so it must be started by its full path.
    path = which("sshd", f"{reader.env.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin", reader.files) or "/usr/sbin/sshd"
    argv = templates.command("ssh/sshd.j2", sshd=path, config=config)
    log = in_attempt(job, "sshd.log")
    # sshd exits with 255 after any failure, most often because its port is taken.
    return Process(
        name=NAME, argv=argv, log=log, unset=misleading(reader.env), tag="[sshd] ", behaviour=behaviour, quiet=True,
        fails_as=WaitError.exit_code, sessions=sessions(reader),
    )  # fmt: skip


def _keygen(job: Job, reader: Reader, name: str, path: str) -> Process:
    return _step(job, reader, name, ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ranklaunch", "-f", path))


def _step(job: Job, reader: Reader, name: str, argv: tuple[str, ...]) -> Process:
    log = in_attempt(job, "ssh.log")
    return Process(name=name, argv=argv, log=log, env=common_env(job, reader), unset=misleading(reader.env), tag=f"[{name}] ")


NEEDS = {
    NAME: Need("it comes with OpenSSH (openssh-server on Debian and Ubuntu)"),
    "ssh-keygen": Need("it comes with OpenSSH (openssh-client on Debian and Ubuntu)"),
}


class Sshd(Launcher):
    """sshd of the job, through which node 0 starts ranks on this node."""

    NAME = NAME
    CARRIERS = CARRIERS
    ENDS_RANKS = (TAKEN,)


class BelowPdsh(Sshd):
    """sshd through which pdsh starts launch.py. The ranks are children of launch.py, which would signal them one by one."""

    NAME = f"{NAME}.pdsh"
    DEPTH = 1
