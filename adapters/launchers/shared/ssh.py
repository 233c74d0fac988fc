"""An SSH server of the job's own on every node, for launchers that reach the other nodes by ssh: mpirun, and DeepSpeed's pdsh.

Keys: the keys of the platform or the image, if these let one node into another (Volcano's ssh plugin mounts such keys). Else node 0
makes a key for this run. Its public half reaches the other nodes when the nodes meet; the public halves of all nodes' host keys reach
node 0 in the same way. So only nodes let in by the muster are let in or trusted. Private halves stay on their own node, in a folder
for removal at the end.
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
    "folder with a private key and the authorized_keys that let it in, or new for a key of this run's own",
    default_text="~/.ssh or /root/.ssh where such keys are, else new",
)  # fmt: skip

TEMPORARY = Variable(
    "temporary",
    ("OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base", "OMPI_MCA_orte_remote_tmpdir_base", "TMPDIR", "TEMP", "TMP"),
    parse.text, "/tmp", "folders where Open MPI 4 may keep the files of its daemons, which are removed when ranklaunch has killed them",
    set_by="image",
)  # fmt: skip

REMOTE_SHELL = Variable(
    "remote_shell", ("RANKLAUNCH_REMOTE_SHELL",), parse.OneOf("ssh", "blaunch", "pbs_tmrsh"), "ssh",
    "what reaches the other nodes: ssh, with an sshd of the job's own on each, or LSF's or PBS's own way, with none",
)  # fmt: skip

VARIABLES = (PORT, KEYS, RUN_DIR, TEMPORARY, REMOTE_SHELL)

NAME = "sshd"
TAKEN = " failed: Address already in use"  # it goes on with the other family, if that is free, and serves nobody who comes by this one
NEW = "new"
PRIVATE_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
USER_KEY, HOST_KEY = "ssh user key", "ssh host key"  # as nodes offer them
# Between sshd and a rank that came through it: sessions, the account's shell, and the daemons of Open MPI 4, Open MPI 5 and MPICH.
CARRIERS = ("sshd", "sshd-session", "sshd-auth", "sh", "bash", "dash", "orted", "prted", "hydra_pmi_proxy")


def reached(job: Job, reader: Reader, templates: Templates, behaviour: str = NAME) -> dict[str, Any]:
    """Return the fields of a plan for an sshd on its node, and on node 0 for what the ssh client needs; for another shell, node 0's private
    folder alone. behaviour: NAME of the sshd's class."""
    if not by_ssh(reader):
        return {} if job.node_index else {"private": private_folder(job, reader)}
    account = reader.account
    if not account.name:
        reader.problem("sshd and ssh need a user name, and this user id has none in /etc/passwd: run the container as a user with a name")
    if account.shell.endswith(("/nologin", "/false")):
        reader.problem(
            f"sshd runs what it is told by the account's shell, and that of {account.name} is {account.shell}, which ends every session: "
            f"give it one in the image (usermod -s /bin/sh {account.name}), or run the container as another user"
        )
    port, private = reader.get(PORT), private_folder(job, reader)
    host_key, user_key = join(private, "host_key"), join(private, "key")
    folder, key = _given_keys(reader)
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
    if account.root:  # where sshd confines what speaks before a key was shown; images without a running sshd lack it
        steps.insert(0, _step(job, reader, "privilege separation", ("install", "-d", "-m", "0755", "/run/sshd")))
    service = _service(job, reader, templates, files[0].path, behaviour)
    return {"files": tuple(files), "prepare": tuple(steps), "services": (service,), "offers": offers, "private": private}


def _sshd(job: Job, reader: Reader, templates: Templates, port: int, folder: str) -> tuple[File, File]:
    """Return the server's configuration and its accepted keys: the keys of a folder, or node 0's own."""
    private = private_folder(job, reader)
    config, authorized = join(private, "sshd_config"), join(private, "authorized_keys")
    text = templates.text(
        "ssh/sshd_config.j2", port=port, host_key=join(private, "host_key"), authorized_keys=authorized, account=reader.account,
        # at all addresses, or at its own loopback address where one machine plays the nodes
        listen=(job.node.host,) if job.node.host.startswith("127.") else (), most_starting=max(200, 2 * len(job.nodes)),
    )  # fmt: skip
    if folder:
        return File(config, text), File(authorized, "", source=join(folder, "authorized_keys"))
    key = reader.shared(0, USER_KEY) or "# node 0's key, which it makes for this run"
    return File(config, text), File(authorized, f"{key}\n")


def client_config(job: Job, reader: Reader) -> str:
    """Return the path of node 0's configuration of the ssh client."""
    return join(private_folder(job, reader), "ssh_config")


def program(job: Job, reader: Reader) -> str:
    """Return the path of what node 0 starts in place of ssh."""
    return join(private_folder(job, reader), "ssh")


# Options of ssh's are left out; the first word behind them is a host, the others a command for a shell. blaunch gives it to one itself.
# By program: a variable of the batch system's, without which it reaches nobody, and the line that starts it.
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
    """Return a script with ssh's command line, in place of ssh, for launchers that start ssh themselves."""
    shell = reader.get(REMOTE_SHELL)
    beside, line = _SHELLS[shell]
    if job.node_index == 0 and not reader.env.get(beside):
        reader.problem(f"{reader.described(REMOTE_SHELL)}: {shell} reaches no other host without {beside}, which node 0 does not have here")
    return File(program(job, reader), _IN_PLACE_OF_SSH.format(line), "0700")


def waits(job: Job, reader: Reader, *, for_sshd: bool) -> tuple[Wait, ...]:
    """Return the waits for every node's name, and for its sshd, which starts once the nodes have met."""
    limit = reader.get(WAIT_S)
    hosts = Wait("hosts", ",".join(node.host for node in job.nodes), limit)
    if not for_sshd:
        return (hosts,)
    return hosts, Wait("port", ",".join(f"{address(reader.address_of(node.host))}:{reader.get(PORT)}" for node in job.nodes), limit)


def private_folder(job: Job, reader: Reader) -> str:
    """Return the private folder of this run, separate for each log directory.

    The log directory itself is unfit: platforms copy it to places with other readers. Its digest tells apart jobs with one name.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", job.name)[:80]
    folder = reader.absolute(reader.get(RUN_DIR))
    if re.search(r"\s", folder):
        reader.problem(
            f"{reader.described(RUN_DIR)}: expected a folder without spaces: launchers take what is behind one for another option"
        )
    logs = hashlib.sha256(job.log_dir.encode(errors="surrogateescape")).hexdigest()[:8]
    return join(folder, f"ranklaunch-{name}-{job.attempt}-{job.node_index}-{logs}")


def _given_keys(reader: Reader) -> tuple[str, str]:
    """(folder, name of the private key) of the platform's or the image's keys; two empty texts where there are none."""
    folder_of_user = reader.get(KEYS)
    if folder_of_user == NEW:
        return "", ""
    for folder in [folder_of_user] if folder_of_user else dict.fromkeys((join(reader.account.home, ".ssh"), "/root/.ssh")):
        allowed = reader.text(join(folder, "authorized_keys"))
        key = _letting_in(reader, folder, allowed)
        if key:
            digest = hashlib.sha256(allowed.encode()).hexdigest()[:12]
            reader.note(KEYS, f"{folder} ({digest})", KEYS.name if folder_of_user else "files")  # the same on every node
            return folder, key
    if folder_of_user:
        reader.problem(
            f"{reader.source(KEYS)}={folder_of_user}: expected authorized_keys there and one of {', '.join(PRIVATE_KEYS)} that it lets in, "
            "which this user can read"
        )
    else:
        reader.note(KEYS, NEW, "default")
    return "", ""


def _letting_in(reader: Reader, folder: str, allowed: str) -> str:
    """Return the name of a private key whose public half, if the folder has that too, is in the text of its authorized_keys."""
    for name in PRIVATE_KEYS if allowed else ():
        public = reader.text(join(folder, f"{name}.pub")).split()
        if reader.files.exists(join(folder, name)) and (len(public) < 2 or public[1] in allowed) and not _withheld(reader, folder, name):
            return name
    if not allowed:
        _withheld(reader, folder, "authorized_keys")
    return ""


def _withheld(reader: Reader, folder: str, name: str) -> bool:
    """Return True for a file that this user cannot read, with a warning: engines mount keys for root alone, or with another owner."""
    path = join(folder, name)
    withheld = reader.files.exists(path) and not reader.text(path)
    if withheld:
        reader.warn(f"{path} is there, but this user cannot read it: the keys of that folder are not used")
    return withheld


def sessions(reader: Reader) -> tuple[str, ...]:
    """Folders of Open MPI 4, in each of which every daemon of it has one of its own."""
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
    # sshd starts itself anew for each connection, so it wants to know its own full path.
    path = which("sshd", f"{reader.env.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin", reader.files) or "/usr/sbin/sshd"
    argv = templates.command("ssh/sshd.j2", sshd=path, config=config)
    log = in_attempt(job, "sshd.log")
    # Its own code, 255, is said of everything, mostly of a port that is taken.
    return Process(
        name=NAME, argv=argv, log=log, unset=misleading(reader.env), tag="[sshd] ", behaviour=behaviour, quiet=True,
        fails_as=WaitError.exit_code, sessions=sessions(reader),
    )  # fmt: skip


def _keygen(job: Job, reader: Reader, what: str, path: str) -> Process:
    return _step(job, reader, what, ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ranklaunch", "-f", path))


def _step(job: Job, reader: Reader, what: str, argv: tuple[str, ...]) -> Process:
    log = in_attempt(job, "ssh.log")
    return Process(name=what, argv=argv, log=log, env=common_env(job, reader), unset=misleading(reader.env), tag=f"[{what}] ")


NEEDS = {
    NAME: Need("it comes with OpenSSH (openssh-server on Debian and Ubuntu)"),
    "ssh-keygen": Need("it comes with OpenSSH (openssh-client on Debian and Ubuntu)"),
}


class Sshd(Launcher):
    """The job's own sshd: ranks that node 0 starts come through it."""

    NAME = NAME
    CARRIERS = CARRIERS
    ENDS_RANKS = (TAKEN,)


class BelowPdsh(Sshd):
    """An sshd through which pdsh starts launch.py, which starts the ranks and would signal them one after the other."""

    NAME = f"{NAME}.pdsh"
    DEPTH = 1
