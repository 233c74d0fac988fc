"""What processes wrote is shown without secrets and without what moves a cursor."""

from __future__ import annotations

import random
import string
import subprocess
import sys
import time
from collections.abc import Callable

import helpers
import pytest

import ranklaunch.redact
from ranklaunch import errors, showing
from ranklaunch.redact import lines, redact

GOLDEN = helpers.ROOT / "tests" / "golden"
MEGABYTE = 1 << 20

TOKENS = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "glpat-" + "a1" * 10,
    "hf_" + "aB" * 17,
    "sk-proj-" + "a1" * 20,
    "xoxb-123-456-abcdef",
    "wandb_v1_" + "aB3" * 10,
    "gsk_" + "aB3" * 10,
    "npm_" + "aB3" * 10,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def_1",
]


@helpers.for_each(list(TOKENS))
def test_tokens_are_hidden_wherever_they_stand(token: str) -> None:
    for line in (token, f"HTTPError: 401 for {token}, bad", f"'{token}'", f"x={token}", f"\x1b[31m{token}\x1b[0m"):
        assert token not in showing.fit_to_show(line), line
    for line in (token, f"x={token}", f"--pass={token}", f'{{"a": ["{token}", 1]}}', f"/data/{token}"):
        assert token not in " ".join((*redact.argv([line]), redact.text(line), redact.environment({"A": line})["A"])), line


@helpers.for_each(
    [
        ("python train.py --token hunter2 --lr 1", "python train.py --token *** --lr 1"),
        ("--token=hunter2 x", "--token=*** x"),
        ("HF_TOKEN=hunter2 failed", "HF_TOKEN=*** failed"),
        ("{'password': 'hunter2', 'lr': 1}", "{'password': '***', 'lr': 1}"),
        ('{"api_key":"hunter 2", "lr": 1}', '{"api_key":"***", "lr": 1}'),
        ("Authorization: Bearer hunter2", "Authorization: Bearer ***"),
        ("ConnectionError: https://user:hunter2@host/x refused", "ConnectionError: https://user:***@host/x refused"),
        ("fatal: https://hunter2@host/x.git", "fatal: https://***@host/x.git"),
        ("error: HF_TOKEN=hunter2 is no key: --auth --token hunter2", "error: HF_TOKEN=*** is no key: --auth --token ***"),
        ("max_tokens=3 pad_token_id=api_key=hunter2", "max_tokens=3 pad_token_id=api_key=***"),
        ("sshpass -p hunter2Aa! ssh -p 22", "sshpass -p *** ssh -p 22"),
        ("token=hunter2,password='hunter2';x", "token=***,password='***';x"),
        ("GET https://host/x?token=hunter2&n=1", "GET https://host/x?token=***&n=1"),
        # lines of a program, as tracebacks quote them
        ("    os.environ['WANDB_API_KEY'] = 'hunter2'", "    os.environ['WANDB_API_KEY'] = '***'"),
        ('    config["db"]["password"]="hunter 2"', '    config["db"]["password"]="***"'),
        ('    os.environ.setdefault("HF_TOKEN", "hunter2")', '    os.environ.setdefault("HF_TOKEN", "***")'),
        ("    os.putenv('HF_TOKEN','hunter2')", "    os.putenv('HF_TOKEN','***')"),
        ('    token: str = "hunter2"', '    token: str = "***"'),
        ("Command '['x', '--token', 'hunter2']' returned 1", "Command '['x', '--token', '***']' returned 1"),
        ("environb({b'HF_TOKEN': b'hunter2'})", "environb({'HF_TOKEN': '***'})"),
        ("Config(secret_key=b'hunter2', b=1)", "Config(secret_key='***', b=1)"),
        (r'{"a": "{\"token\": \"hunter2\"}"}', '{"a": "{"token": "***"}"}'),
        (r'{"a": "{\"b\": \"{\\\"token\\\": \\\"hunter2\\\"}\"}"}', '{"a": "{"b": "{"token": "***"}"}"}'),
        (r"{\"Authorization\": \"Basic hunter2\"}", '{"Authorization": "Basic ***"}'),
        ("password   =    hunter2", "password   =    ***"),
        ("  --token     hunter2", "  --token     ***"),
        ("token\xa0=\u2003hunter2", "token\\xa0=\\u2003***"),
        ("  wandb_api_key ................... hunter2", "  wandb_api_key ................... ***"),
        ("Cookie: a=hunter2; b=hunter2", "Cookie: ***"),
        ("{'Cookie': 'sid=hunter2', 'a': 1}", "{'Cookie': '***', 'a': 1}"),
        ("mysqldump -uroot -phunter2 db", "mysqldump -uroot -p*** db"),
        ("sshpass -phunter2 ssh -p22 x", "sshpass -p*** ssh -p22 x"),
        ("['/bin/curl', '-u', 'user:hunter2', 'x']", "['/bin/curl', '-u', '***', 'x']"),
        (f"wandb login --relogin {'hunter2x' * 5} x", "wandb login --relogin *** x"),
        ("KeyError: ('token', 'hunter2')", "KeyError: ('token', '***')"),
        ("the password is hunter2, no: 'hunter2'", "the password is ***, no: 'hunter2'"),
        ("Your API key is: 'hunter2'", "Your API key is: '***'"),
        ("token := hunter2 secret => hunter2", "token := *** secret => ***"),
        ("docker login -u me -p hunter2 registry.example", "docker login -u me -p *** registry.example"),
        ("['helm', 'registry', 'login', '-p', 'hunter2', 'x']", "['helm', 'registry', 'login', '-p', '***', 'x']"),
        ("obsutil config -i=hunter2 -k=hunter2 -e=obs.example", "obsutil config -i=*** -k=*** -e=obs.example"),
        ("aws configure set aws_secret_access_key hunter2 --profile x", "aws configure set aws_secret_access_key *** --profile x"),
        (
            "git config --global user.password 'hunter2'; setenv HF_TOKEN hunter2",
            "git config --global user.password '***'; setenv HF_TOKEN ***",
        ),
        ("export TOKEN hunter2", "export TOKEN ***"),
        ("<server><password>hunter2</password></server>", "<server><password>***</password></server>"),
        ("<a:Token x='1'> hunter2 &amp; 2 </a:Token>", "<a:Token x='1'>***</a:Token>"),
        ("<name>fs.s3a.secret.key</name> <value>hunter2</value>", "<name>fs.s3a.secret.key</name> <value>***</value>"),
        ("api_key hunter2 invalid", "api_key *** invalid"),
        ("Incorrect API key provided: hunter2.", "Incorrect API key provided: ***"),
        ("password 'hunter2' rejected", "password '***' rejected"),
        (f"'token': '{'hunter2 ' * 100}', 1", "'token': '***', 1"),
        (f"'token': '{'hunter2 ' * 1000}, 1", "'token': '***'"),
        # quotes within the value, members below the name, and a name beside the value
        (r'{"user": "u", "password": "a\"hunter2", "b": 1}', '{"user": "u", "password": "***", "b": 1}'),
        (r'{"a": "{\"token\": \"x\\\" hunter2\", \"b\": 1}"}', '{"a": "{"token": "***", "b": 1}"}'),
        (r'{"password": "hunter2\\", "b": "c"}', '{"password": "***", "b": "c"}'),
        (r'TOKEN="a\" hunter2" x', 'TOKEN="***" x'),
        (r'{"password": "a\"hunter2', '{"password": "***'),
        ('{"token":{"value":"hunter2"},"b":1}', '{"token":***,"b":1}'),
        (
            '[{"name": "HF_TOKEN", "value": "hunter2"}, {"name": "B", "value": "1"}]',
            '[{"name": "HF_TOKEN", "value": "***"}, {"name": "B", "value": "1"}]',
        ),
        ('password=a"hunter2, token -> hunter2', "password=***, token -> ***"),
        ("Invalid token: 'hunter2'; wrong token hunter2", "Invalid token: '***'; wrong token ***"),
        ("requests.get(url, auth=('user', 'hunter2'))", "requests.get(url, auth=***)"),
        ("get(url, auth=HTTPBasicAuth('user', f('hunter2')), b=1)", "get(url, auth=***, b=1)"),
        ("    api_key: Optional[str] = 'hunter2'", "    api_key: Optional[str] = '***'"),
        ("password = os.environ['X'] or 'hunter2'", "password = ***"),
        ('token=a["b"] + "hunter2"', "token=***"),
        ("Secret Access Key: hunter2", "Secret Access Key: ***"),
        ("    wandb.login(key='hunter2')", "    wandb.login(key='***')"),
        (f"moxing: ak={'aB3' * 7} sk={'aB3' * 7}", "moxing: ak=*** sk=***"),
        ("sshpass -p hunter2 ssh -p 22 x", "sshpass -p *** ssh -p 22 x"),
        ("token: [hunter2], --password: hunter2", "token: ***, --password: ***"),
        ("EnvVar(name='HF_TOKEN', value='hunter2')", "EnvVar(name='HF_TOKEN', value='***')"),
        (
            '{"value": "hunter2", "name": "HF_TOKEN"}, {"value": "1", "name": "B"}',
            '{"value": "***", "name": "HF_TOKEN"}, {"value": "1", "name": "B"}',
        ),
        ("| lr | 0.1 | hf_token | hunter 2  |", "| lr | 0.1 | hf_token | ***  |"),
        ("\u2502 --password \u2502 hunter2 \u2502", "\u2502 --password \u2502 *** \u2502"),
        (
            "\u2551 **token**: \u2551 hunter2 \u2551 || `api_key` || hunter2 ||",
            "\u2551 **token**: \u2551 *** \u2551 || `api_key` || *** ||",
        ),
        ('{"name": "HF_TOKEN", "type": "s", "value": "hunter2"}', '{"name": "HF_TOKEN", "type": "s", "value": "***"}'),
        (
            "os.environ.get('HF_TOKEN', 'hunter2'), getenv(\"DB_PASS\",\"hunter2\")",
            "os.environ.get('HF_TOKEN', '***'), getenv(\"DB_PASS\",\"***\")",
        ),
        ("token: !secret hunter2", "token: !secret ***"),
        ("password: !!str hunter2", "password: !!str ***"),
        ("- password: !!binary aHVudGVyMg==", "- password: !!binary ***"),
        ("token: !!python/unicode 'hunter2'", "token: !!python/unicode '***'"),
        ("{pwd: !!str hunter2, token: !<tag:yaml.org,2002:str> hunter2}", "{pwd: !!str ***, token: !<tag:yaml.org,2002:str> ***}"),
        ("secret: &a !!str hunter2", "secret: &a !!str ***"),
        ("password: &a hunter2, token: token hunter2, auth: Basic hunter2", "password: &a ***, token: token ***, auth: Basic ***"),
        # what begins with a dash, or has what ends a value elsewhere
        ("HF_TOKEN=-hunter2 x, token: -hunter2, --token=-hunter2", "HF_TOKEN=*** x, token: ***, --token=***"),
        ("x --token -v; HF_TOKEN= --lr 1", "x --token -v; HF_TOKEN= --lr 1"),
        ("DB_PASSWORD=Tr0ub4dor,hunter2", "DB_PASSWORD=***"),
        ("export DB_PASSWORD=a;b=hunter2)", "export DB_PASSWORD=***)"),
        ("[rank0]: DB_PASSWORD=)hunter2", "[rank0]: DB_PASSWORD=***"),
        ("  password: two hunter2, words", "  password: ***"),
        ("connect(password=a}hunter2, token=a)hunter2,user=b) --token=a;hunter2", "connect(password=***, token=***,user=b) --token=***"),
        ("token=hunter2,user=b token: x)a=hunter2 [token=x],a=b", "token=***,user=b token: *** [token=***],a=b"),
        ("x --token )hunter2 --token=:hunter2 token=a,1b=hunter2", "x --token *** --token=*** token=***"),
        ("tokens={'hf': 'hunter2'}, hf_tokens: ['hunter2']", "tokens=***, hf_tokens: ***"),
        ("token：hunter2 密码：hunter2", "token：*** 密码：***"),
        ('<add key="ApiKey" value="hunter2"/>', '<add key="ApiKey" value="***"/>'),
        ("mpiexec -genv HF_TOKEN hunter2x", "mpiexec -genv HF_TOKEN ***"),
        ("VOLC_SECRETKEY=hunter2 APIToken: hunter2", "VOLC_SECRETKEY=*** APIToken: ***"),
        ("{'authtoken': 'hunter2'} --accesskey hunter2", "{'authtoken': '***'} --accesskey ***"),
        ("Unknown token: hunter2x, expected token: correcthorsebatterystaple", "Unknown token: ***, expected token: ***"),
        ("password: no hunter2", "password: ***"),
        ("password: 12 hunters", "password: ***"),
        ("token: 17,hunter2, pwd=/hunter2 auth_token: 1234, HF_TOKEN=1234", "token: ***, pwd=*** auth_token: ***, HF_TOKEN=***"),
        ("Access token: expiredhunter2", "Access token: ***"),
        ("curl -sSfu me:hunter2,x https://h -sSuhunter2", "curl -sSfu *** https://h -sSu***"),
        ("Command '['curl', '-sSfu', 'me:hunter2', 'x']'", "Command '['curl', '-sSfu', '***', 'x']'"),
        ("machine h login me password hunterx", "machine h login me password ***"),
        (
            "wandb: Appending key for api.wandb.ai to your netrc file: hunter2",
            "wandb: Appending key for api.wandb.ai to your netrc file: ***",
        ),
        # a word before the name that begins like one; line ends and colours as repr writes them
        (
            "AuthenticationError: api_key='hunter2', tasks: login with token=\"hunter2\"",
            "AuthenticationError: api_key='***', tasks: login with token=\"***\"",
        ),
        ("login(path: str, token = 'hunter2')", "login(path: str, token = '***')"),
        (r"KeyError: 'lr: 1\ntoken: hunter2\n\r\nlr: 2'", r"KeyError: 'lr: 1\ntoken: ***\n\r\nlr: 2'"),
        (r"'a\tpassword: my hunter2\nb: 1'", r"'a\tpassword: ***\nb: 1'"),
        (r"'x_token:\n  password:\n   hunter2'", r"'x_token:\n  password:\n   ***'"),
        (r"PASSWORD=a\new,hunter2 x token=a\thunter2 x", "PASSWORD=*** x token=*** x"),
        (r"b'\x1b[31mapi_key: hunter2\n'", r"'api_key: ***\n'"),
        ("a\x1d\\ntoken: hunter2", "a \\ntoken: ***"),
        # quotes within the value
        (r'KeyError: \'{"user": "me", "password": "K^\\"hunter2", "b": 1}\'', 'KeyError: \'{"user": "me", "password": "***", "b": 1}\''),
        (r'bad {"name": "DB_PASSWORD", "value": "K^\"hunter2"}, 1', 'bad {"name": "DB_PASSWORD", "value": "***"}, 1'),
        (r"""[('a', 'b'), ('password', 'abc"\'hunter2')]""", "[('a', 'b'), ('password', '***')]"),
        ("""+ DB_PASSWORD='abc'"'"'hunter2' x""", "+ DB_PASSWORD='***' x"),
        (r"+ DB_PASSWORD='abc'\''hunter2' x, token='''hunter2'''", "+ DB_PASSWORD='***' x, token='***'"),
    ]
)
def test_values_of_secrets_are_hidden(line: str, shown: str) -> None:
    assert showing.fit_to_show(line) == shown
    assert showing.fit_to_show(shown) == shown


@helpers.for_each(
    [
        "ValueError: loss is nan",
        "KeyError: 'input_ids'",
        "max_tokens=2048 pad_token_id: 0",
        '  File "/opt/train.py", line 3, in forward',
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        'Unexpected key(s) in state_dict: "module.a", "module.b".',
        'Missing key(s) in state_dict: "token_embedding.weight", "head.weight".',
        'if config["auth"] == "none":',
        "assert token == 'none'",
        "curl: option -u: requires parameter; mysql -u root -p db",
        "the token is invalid, and the password is missing: wandb login again",
        "config.get('token', 'none'), ['token', 'password']",
        "no cookies: Cookie: none",
        "wandb: Appending key for api.wandb.ai to your netrc file: /root/.netrc",
        "kubectl create configmap x --from-literal=lr=0.1; rclone config create n s3 provider AWS; az vm list -p x",
        'name: USE_AUTH\nvalue: "true"\nauth:\n  off\nhf_token\n  Bad [type=x, input_value=7, input_type=int]',
        "hf_token\n  Field required [type=missing]\nname: HF_TOKEN\n  valueFrom: x",
        "tokens: ['the', 'cat'], tokens={'bos': 1}, tokens={'text': 'a'}",
        "google-auth  2.0.0rc1\nfast_pass    12.3ms\ntoken_head   3x1024\npassword  field required\ntoken_path   /a1/b2",
        "ValueError: Unknown token: foo, unknown token: '[', Expected token: Paris",
        "token: null, Access token: expired, auth: ok, auth=disabled x, secret: true, password: required, --use-auth false",
        "token_size=3 token_weight=0.3 token_ratio=0.3 n_token: 32 dep_token: -1, text_token=1024 pat: 3 pass=3 loss/token: 1.23",
        "x --token >out2.txt --token <token> [--token ] y (--token ), z --token",
        "low_pass: 200 Hz, pw_conv: 3, high_pass=300 band_pass_filter=0.3 dw, pw = 1, 2",
        "pwd: /home/me/work, SSH_AUTH_SOCK=/tmp/x pwd=/root",
        "    self.token = token; Run fast pass: custom_op, compiling pass: inline",
        "LocalTokenNotFoundError: Token is required (`token=True`), but no token found.",
        "RANKLAUNCH_SSH_KEYS=/tmp/told: expected authorized_keys there; --ssh-key ~/.ssh/id_rsa",
        "ValueError: password: must be set, secret: not found, bash: pass: command not found, auth: timed out",
        "user_token: <|user|>, api_key: EMPTY, next_token: Paris, FLOPs per token: 6.0e9, PASS: test_a",
        "Command 'ssh -o PasswordAuthentication=no h'",
        "tokens['input_ids'] = tokens['input_ids'].to(device)",
        "step 10\tloss 0.5",
        "größer als möglich: 日本",
        r'{"a": "{\"lr\": 1}"} b\'x\' b"y"',
        r'{"user":"u","b":"say \"x\"","value":"1"}',
        "Enter the password:\nTraceback (most recent call last):",
        "token:\n  secretKeyRef:\n    name: x",
        "['--tokenizer',\n 'bpe']",
        "docker run -p 8080:80 -u 1000 image; docker login registry.example; please login -p",
        "set token to none; export PASSWORD and exit; config set lr 0.1",
        "<tokenizer>bpe</tokenizer> <name>lr</name><value>0.1</value> <password></password> a<token>b",
        "forward pass: 12.3 ms, backward pass = 24.5 ms",
        "train.py: error: argument --token: expected one argument",
        "usage: train.py [-h] [--hf-token HF_TOKEN]",
        "prompt_token_ids: [1, 2, 3]",
        '    token = os.environ["HF_TOKEN"]',
        "login(token=os.environ['HF_TOKEN'])",
        "predicted token: Paris, token: 17, token_accuracy=0.87, first_token_latency: 0.123, pass: 1 of 3",
        "WARNING:auth:retrying",
        "auth.py:42: UserWarning: x; src/pass.cc:123:7 error, [bpe_token.cpp:120] unk, File auth.py:9",
        "TokenError: no token in the pipeline; app.AuthError: denied, NoCredentialsError: Unable to locate credentials",
        "LocalTokenNotFoundError: Token is required, ProxyAuthError: 407, TokenExpiredWarning: renew",
        "| pass | 12.3 ms |, pass: 3/10, pass = 0.5ms",
        "token_idx=12 token_dropout: 0.1 pass_rate=0.97 token_index: 3 token_pos=7",
        "(token_embedding): Embedding(50257, 768), token_embeddings: Embedding(1, 2)",
        "PWD=/workspace OLDPWD=/root",
        "    token = tokens[i]",
        "    client = Client(token=token, api_key=self.api_key, password = args.db.password)",
        "oov_token='[UNK]', self_token=[OOV]",
        "    token: int = 3",
        '    api_key = os.getenv("OPENAI_API_KEY")',
        "test_token.py::test_password PASSED",
        "GOOGLE_APPLICATION_CREDENTIALS=/etc/key.json",
        "| token | count | auth | none |  | tokens | 512 |",
        "echo token | wc -l | tee 2",
        "    token = self.tokenizer.encode(text)",
        "    token: Optional[str] = None,",
        "boi_token='<boi>' tool_call_token=<tool_call> sot_token: 50258 ignore_token=-100 token_bytes=151936 token_dtype=uint16",
        "cls_token: torch.Size([1, 1, 768]) end_token='<|im_end|>' token_cache=/data/x",
        r"ValueError: 'lr: 0.1\ntoken: null\npass: 1/3\n' in C:\new\tokens\text",
        "invalid token type, unknown token at 7: bad token",
        "password must have 8 characters, token 2 of 7, api key missing, no API key provided: log in",
    ]
)
def test_other_lines_are_as_they_were(line: str) -> None:
    assert showing.fit_to_show(line) == line


# Of the outputs in tests/corpus. OpenSSH's function is no secret, and the word behind it neither: the price of hiding what is behind auth.
HIDDEN_IN_VAIN = {"debug1: auth_activate_options: setting new authentication options"}


def test_what_programs_really_print_stays_readable() -> None:
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in (helpers.ROOT / "tests" / "corpus").rglob("*.txt")]
    printed = [line for text in texts for line in text.splitlines()]
    assert len(printed) > 10_000
    assert {line.removesuffix(" [preauth]") for line in printed if lines.shown([line]) != (line,)} == HIDDEN_IN_VAIN


def test_our_own_words_stay_readable() -> None:
    """Of the golden cases that are refused."""
    texts = [path.read_text(encoding="utf-8") for path in GOLDEN.rglob("*.txt")]
    refusals = [line for text in texts for line in text.splitlines() if line.startswith("ranklaunch: ")]
    assert len(refusals) > 100
    assert [errors.reason(line) for line in refusals] == refusals


def test_where_a_secret_is_may_be_said() -> None:
    for text in ("RANKLAUNCH_SECRET_FILE=/run/key: No such file", "RANKLAUNCH_SECRET_FILE: /run/key: a FIFO is there", "--token-file ./a"):
        assert errors.reason(text) == text
    assert errors.reason("env.HF_TOKEN: expected text") == "env.HF_TOKEN: expected text"
    assert showing.fit_to_show("HF_TOKEN: hunter2") == "HF_TOKEN: ***"
    assert errors.reason("TOKEN_FILE=hunter2, or TOKEN=/hunter2") == "TOKEN_FILE=***, or TOKEN=***"


def test_a_secret_is_found_whatever_colour_it_has() -> None:
    for line in (
        f"\x1b[31m{TOKENS[0]}\x1b[0m",
        f"\x1b[1mtoken\x1b[0m=\x1b[32m{TOKENS[0]}",
        f"\x1b[2K{TOKENS[4]}",
        "--token \x1b[1mhunter2\x1b[0m",
    ):
        shown = lines.shown([line])[0]
        assert "***" in shown, line
        assert not any(part in shown for part in ("\x1b", "hunter2", "AKIA", "aBaB")), line
    coloured = "\x1b[31mValueError\x1b[0m: a\0b"
    assert lines.shown([coloured]) == (coloured,)


def test_a_private_key_is_hidden() -> None:
    key = ["-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU" * 2, "-----END OPENSSH PRIVATE KEY-----", "x"]
    assert lines.shown(key) == (key[0], "***", key[2], "x")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("BEGIN PRIVATE KEY-----\\nhunter2hunter2\\n-----END PRIVATE KEY-----", "BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----"),
        (f"[rank0]: -----BEGIN PRIVATE KEY-----\n[rank0]: {'hunter2' * 9}", "[rank0]: -----BEGIN PRIVATE KEY-----\n***"),
    ],
)
def test_a_private_key_is_hidden_in_one_line_and_behind_tags(text: str, shown: str) -> None:
    assert showing.fit_to_show(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token=\nhunter2\nx", "token=\n***\nx"),
        ("\x1b[1mtoken:\x1b[0m\r\n  \x1b[2mhunter2\x1b[0m", "token:\\r\n  ***"),
        ("HF_TOKEN=hun\\\nter2", "HF_TOKEN=***\n***"),
        ("x --token \\\n  hunter2 \\\n --lr 1", "x --token ***\n  ***\n --lr 1"),
        (" '--token',\n 'hunter2',\n '--lr',", " '--token',\n '***',\n '--lr',"),
        (
            "hf_token\n  Extra [type=x, input_value='hun\\'ter2', input_type=str]",
            "hf_token\n  Extra [type=x, input_value='***', input_type=str]",
        ),
        (
            "[rank0]: db.password\n[rank0]:   Bad [input_value=hunter2, input_type=A]",
            "[rank0]: db.password\n[rank0]:   Bad [input_value=***, input_type=A]",
        ),
        ("- name: HF_TOKEN\n  value: hunter2 x\n- name: LR\n  value: 1", "- name: HF_TOKEN\n  value: ***\n- name: LR\n  value: 1"),
        (' {\n  "name": "HF_TOKEN",\n  "value": "hunter2"\n }', ' {\n  "name": "HF_TOKEN",\n  "value": "***"\n }'),
        ("- --token\n- hunter2\n- --lr\n- --auth\n- --x", "- --token\n- ***\n- --lr\n- --auth\n- --x"),
        ("secrets:\n- hunter2\n- hunter2\nlr: 1", "secrets:\n- ***\n- ***\nlr: 1"),
        ("  password: |\n    hunter2 x\n\n    hunter2\n  lr: 1", "  password: |\n    ***\n\n    ***\n  lr: 1"),
        ("api_key: >-\n  hunter2\nlr: 1", "api_key: >-\n  ***\nlr: 1"),
        ("lr           0.1\ndb_password  hunter2\nhf_token\thunter2", "lr           0.1\ndb_password  ***\nhf_token\t***"),
        (r"{\"password\":" + "\n" + r"  \"hunter2\"", r"{\"password\":" + '\n  "***"'),
    ],
)
def test_a_secret_that_goes_on_in_the_next_line_is_hidden(text: str, shown: str) -> None:
    assert showing.fit_to_show(text) == shown


def test_control_characters_do_nothing() -> None:
    assert showing.fit_to_show("\x1b[1;31mError\x1b[0m: a\x1b]0;title\x07b\rc\x9bd") == "Error: a\\x1b]0;title\\x07b\\rc\\x9bd"
    assert showing.one_line("a\nranklaunch: succeeded\x1b[2J") == "a; ranklaunch: succeeded\\x1b[2J"


PIECES = [
    "eyJ-",
    "eyJa.",
    "sk-a-",
    "sk-" + "a" * 25 + "-",
    "://",
    "http://",
    "http://a:",
    "a:b ",
    "token=a ",
    "-",
    "--token ",
    "a1",
    "glagent-a",
    "xoxb-1-",
    "&a=b?",
    "authorization:",
    "bearer ",
    '"token":"',
    "'",
    "token'",
    "\x1b[",
    "\x1b[31m",
    "BEGIN PRIVATE KEY",
    "=",
    "1234567890:",
    "pass",
    "a.b-",
    "SG.",
    "https://hooks.slack.com/services/T/B",
    "0a" * 16 + "-u",
    "MMMMMMMMMMMMMMMMMMMMMMMMMM.aaaaaa.",
    "token: ",
    "A" * 15 + " ",
    "\\",
    '\\"',
    "b'token': b'",
    "key: '",
    "'--key', 'a",
    "token" + " " * 32,
    "token" + " " * 32 + "=" + " " * 32,
    "token ...... ",
    "PRIVATE KEY-----AAAAAAA",
    "\n--token ",
    "token=\n",
    "| token",
    "|" + " " * 32,
    "value='",
    "value=1,name=a",
    "token=a['",
    "argument --token: invalid a ",
    "api.telegram.org/bot",
    "token=a,",
    "HF_TOKEN=a)),,",
    "token=[a]b;c=",
    "hf_token\n",
    "token: |\n ",
    "secrets:\n- ",
    "name: token\ninput_value=",
    "token  a1",
    "rclone config key-",
    "rclone config " + "a" * 32,
    "npm config set //a:",
    "curl -sSS",
    "curl -u a,a",
    "login a password",
    "create secret --from-literal='",
]


@pytest.mark.one_python
@helpers.for_each(list(PIECES))
def test_hostile_text_takes_no_long_time(piece: str) -> None:
    """Twice as much of it takes about twice as long: no pattern goes over it again and again."""
    text = (piece * (32768 // len(piece) + 1))[:32768]
    showing.fit_to_show(text[:10])
    assert any(_seconds(text) < 3 * _seconds(text[:16384]) + 0.005 for _ in range(5)), piece


@pytest.mark.one_python
def test_padded_cells_take_no_longer_than_others() -> None:
    """Each of its characters as long as those of a line of words, as far as machines are even."""
    padded = (("|a|" + " " * 64 + "1" + " " * 800 + "x") * 40)[:32768]
    assert any(_seconds(padded) < 100 * _seconds("word " * 6554) + 0.1 for _ in range(5))


@pytest.mark.one_python
@pytest.mark.parametrize("show", [showing.fit_to_show, redact.text])
def test_a_line_of_a_megabyte_takes_no_long_time(show: Callable[[str], str]) -> None:
    """Whatever follows what in it: time grows with its length, not with the square of it."""
    for number in range(2):
        some = random.Random(number).sample(PIECES, 3)
        text = ("".join(some) * MEGABYTE)[:MEGABYTE]
        began = time.thread_time()
        show(text)
        assert time.thread_time() - began < 8, some


def test_short_words_hold_no_secret() -> None:
    """They are shown without a look: nobody waits for the patterns who has just been told to end."""
    draw = random.Random(1)
    for _ in range(2000):
        text = " ".join("".join(draw.choices(string.ascii_letters + string.digits, k=draw.randint(1, 12))) for _ in range(4))
        assert errors.reason(text) == showing.fit_to_show(text) == text


def test_what_cannot_be_looked_through_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ranklaunch.redact.lines", None)
    monkeypatch.delattr(ranklaunch.redact, "lines", raising=False)
    assert errors.reason("stopped by SIGTERM") == "stopped by SIGTERM"
    assert errors.reason("bad --token hunter2").startswith("(left out: ")
    assert "hunter2" not in "".join((errors.reason("bad --token hunter2"), *errors.quoted(["a", "--token hunter2"])))


def _seconds(text: str) -> float:
    began = time.thread_time()
    showing.fit_to_show(text)
    return time.thread_time() - began


@pytest.mark.processes
def test_the_patterns_are_those_of_the_pinned_rules() -> None:
    pytest.importorskip("detect_secrets")
    path = helpers.ROOT / "tools" / "secret_patterns.py"
    made = subprocess.run(
        [sys.executable, "-c", f"import runpy; print(runpy.run_path({str(path)!r})['module'](), end='')"], capture_output=True, check=True
    )
    assert made.stdout.decode() == (helpers.ROOT / "src" / "ranklaunch" / "redact" / "patterns.py").read_text(encoding="utf-8")
