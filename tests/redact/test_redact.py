"""Names that carry secrets, and names that only look like it."""

from __future__ import annotations

import random
import shlex
import sys

import helpers
import hypothesis
import pytest
from hypothesis import strategies

from ranklaunch.redact import forms, patterns, redact

SECRET_OF_SERVICES = """
    S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_ACCESS_KEY_ID CREDENTIAL_PROFILES_FILE
    AWS_SHARED_CREDENTIALS_FILE MA_HW_TOKEN HF_TOKEN HUGGING_FACE_HUB_TOKEN GITHUB_TOKEN WANDB_API_KEY OPENAI_API_KEY VAULT_TOKEN
    AZURE_STORAGE_ACCOUNT_KEY GOOGLE_APPLICATION_CREDENTIALS MLFLOW_TRACKING_PASSWORD MYSQL_PWD SSH_PRIVATE_KEY TF_VAR_db_password
    DOCKER_AUTH NGC_APIKEY SECRET GPG_PASSPHRASE AUTH_TYPE_PWD AUTH_KEY
"""
SECRET_OPTIONS = """
    --password --api-key --api_key --apikey --apiKey --hf-token --hfToken --auth --client-secret -password --aws.secretKey
    --private_key --encryption-key
"""
# Tokenizers speak of tokens, too, and some keys open nothing.
OF_TOKENIZERS = """
    --tokenizer --tokenizer_path TOKENIZERS_PARALLELISM --pad_token --pad-token-id --eos_token_id --bos_token --unk_token --cls_token
    --sep_token --mask_token --max_tokens --num_tokens --max_new_tokens --tokens_per_batch --token_per_step --image_token_index
    --special_token --new_token --max_token_len --token_drop_policy
"""
PLAIN = """
    --key --keys --key_padding_mask --sort_key --num_key_value_heads PRIMARY_KEY --keep_last S3_ENDPOINT S3_USE_HTTPS MA_PIP_URL PATH HOME
    --author --authors --compass --secretary RANK WORLD_SIZE --lr train.py auth_type --auth-method HTTP_AUTH_BACKEND authMode
    api_key_env token_url secretName next_token 密码错误 PADTokenId numTokens BatchTokens bypass forwardPass LowPass encompass
"""


@helpers.for_each([*SECRET_OF_SERVICES.split(), *SECRET_OPTIONS.split()])
def test_secret_name(name: str) -> None:
    assert forms.is_secret(name)


@helpers.for_each(["", *OF_TOKENIZERS.split(), *PLAIN.split()])
def test_plain_name(name: str) -> None:
    assert not forms.is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASS", "AZURE_CREDS", "CRED_FILE", "--passwords", "API_KEYS", "PGPASSWORD", "SSHPASS", "UV_INDEX_TOKEN", "APIToken", "HFToken",
        "AWSAccessKeyId", "authtoken", "secretaccesskey", "VOLC_SECRETKEY", "VOLC_ACCESSKEY", "dbpass",
        "ssh_key", "licensekey", "adminpwd", "githubtoken", "passcode", "数据库密码",
    ],
)  # fmt: skip
def test_further_secret_names(name: str) -> None:
    assert forms.is_secret(name)


@pytest.mark.parametrize("name", ["--train_tokens", "--train-tokens", "--lr-decay-tokens", "--total_tokens", "--tokens", "SEEN_TOKENS"])
def test_numbers_of_tokens_are_no_secret(name: str) -> None:
    assert not forms.is_secret(name)


@helpers.for_each(
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["--password", "hunter2", "x"], ["--password", "***", "x"]),
        (["--password=hunter2", "x"], ["--password=***", "x"]),
        (["--password="], ["--password=***"]),
        (["--api-key=a=b=c"], ["--api-key=***"]),
        # A flag of that name, followed by another option: nothing to hide.
        (["--auth", "--lr", "0.1"], ["--auth", "--lr", "0.1"]),
        (["--password"], ["--password"]),
        (["-H", "X-Auth-Token:hunter2", "--hparams=lr:0.1,token:hunter2"], ["-H", "X-Auth-Token:***", "--hparams=lr:0.1,token:***"]),
        (["--wrap", "python t.py --api-key hunter2 --lr 1"], ["--wrap", "python t.py --api-key *** --lr 1"]),
        (["--mca", "agent", "sshpass -p hunter2 ssh -p 22"], ["--mca", "agent", "sshpass -p *** ssh -p 22"]),
        (["bash", "-c", """A_TOKEN='abc'"'"'hunter2' x"""], ["bash", "-c", "A_TOKEN='***' x"]),
        (["tcp://task-0:29500", "keys: a b", "/path/a b"], ["tcp://task-0:29500", "keys: a b", "/path/a b"]),
        (["--api-keys", "hunter2", "hunter2", "--lr", "1"], ["--api-keys", "***", "***", "--lr", "1"]),
        (["-x", "S3_SECRET_ACCESS_KEY=hunter2"], ["-x", "S3_SECRET_ACCESS_KEY=***"]),
        (["-x", "S3_SECRET_ACCESS_KEY"], ["-x", "S3_SECRET_ACCESS_KEY"]),
        # A word alone is a value or a file, not an option.
        (["password", "hunter"], ["password", "hunter"]),
        (["--dsn", "postgres://user:hunter2@db:5432/x"], ["--dsn", "postgres://user:***@db:5432/x"]),
        (["--url=https://user:hunter2@a,https://b:hunter2@c"], ["--url=https://user:***@a,https://b:***@c"]),
        (["https://:hunter2@host/"], ["https://:***@host/"]),
        (["https://host:8080/a@b", "tcp://worker-0:6666", "a:b@c"], ["https://host:8080/a@b", "tcp://worker-0:6666", "a:b@c"]),
        (["--tokenizer", "gpt2", "--pad_token=<pad>"], ["--tokenizer", "gpt2", "--pad_token=<pad>"]),
        ([], []),
        ([""], [""]),
    ]
)
def test_command(words: list[str], shown: list[str]) -> None:
    assert redact.argv(words) == tuple(shown)
    assert redact.argv(redact.argv(words)) == tuple(shown)


@pytest.mark.parametrize("words", [["--password", "-hunter2"], ["https://user:a@hunter2@host/"], ["https://user:a/hunter2@host/"]])
def test_command_with_an_odd_secret(words: list[str]) -> None:
    assert "hunter2" not in " ".join(redact.argv(words))


def test_environment() -> None:
    env = {"HF_TOKEN": "hunter2", "MA_PIP_URL": "https://u:hunter2@host/simple", "PATH": "/bin", "EMPTY": ""}
    assert redact.environment(env) == {"HF_TOKEN": "***", "MA_PIP_URL": "https://u:***@host/simple", "PATH": "/bin", "EMPTY": ""}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('{"hf_token": "hunter2", "lr": 0.1}', '{"hf_token":"***","lr":0.1}'),
        ('["--hf_token", "hunter2", "--lr", "0.1"]', '["--hf_token","***","--lr","0.1"]'),
        (
            '[{"env": {"url": "https://u:hunter2@host/", "api_key": "hunter2"}}, 1]',
            '[{"env":{"url":"https://u:***@host/","api_key":"***"}},1]',
        ),
        ('{"lr": 0.1,  "max_tokens": 7}', '{"lr": 0.1,  "max_tokens": 7}'),
        (
            '{"env":[{"name":"HF_TOKEN","value":"hunter2"},{"name":"LR","value":"1"}],"token":{"value":"hunter2"}}',
            '{"env":[{"name":"HF_TOKEN","value":"***"},{"name":"LR","value":"1"}],"token":{"value":"***"}}',
        ),
        ("{'token': 'hunter2', 'lr': 0.1}", "{'token': '***', 'lr': 0.1}"),
        ("model.login={user:me,password: hunter2,tokenizer:bpe}", "model.login={user:me,password: ***,tokenizer:bpe}"),
        ("[{name: HF_TOKEN, value: hunter2}]", "[{name: HF_TOKEN, value: ***}]"),
        ("https://host/#access_token=hunter2", "https://host/#access_token=***"),
        ('{"token": ["hunter2"], "cmd": "HF_TOKEN=hunter2 run"}', '{"token":["***"],"cmd":"HF_TOKEN=***"}'),
        ("lr: 0.1\ntoken: hunter2\nhost: db:80", "lr: 0.1\ntoken: ***\nhost: db:80"),
        ("'token=hunter2'", "'token=***'"),
        ("sas=sv=2020&sig=hunter2", "sas=sv=2020&sig=***"),
        ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/***"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/a1-hunter2", "https://open.feishu.cn/open-apis/bot/v2/hook/***"),
        ("https://open.larksuite.com/open-apis/bot/hook/hunter2a1", "https://open.larksuite.com/open-apis/bot/hook/***"),
        ("{token: !!str hunter2, password: &a 'hunter2'}", "{token: !!str ***, password: &a '***'}"),
        ("model={lr:0.1,pad_token:x,host:db,port:80}", "model={lr:0.1,pad_token:x,host:db,port:80}"),
        ('{"a":"{\\"token\\":\\"hunter2\\"}","b":["x y"]}', '{"a":"{\\"token\\":\\"***\\"}","b":["x y"]}'),
        ('[a]\npassword = hunter2\ntoken = "hunter2"', '[a]\npassword = ***\ntoken = "***"'),
        (
            "password: |\n  hunter2\ntoken:\n  hunter2\n- name: HF_TOKEN\n  value: hunter2",
            "password: |\n  ***\ntoken:\n  ***\n- name: HF_TOKEN\n  value: ***",
        ),
        ("machine h login me password hunterx", "machine h login me password ***"),
        (r"lr=1\ntoken=hunter2", r"lr=1\ntoken=***"),
        ('{"a": https://u:hunter2@host/', '{"a": https://u:***@host/'),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=[
        "object",
        "words",
        "nested",
        "nothing",
        "named",
        "of Python",
        "of Hydra",
        "of YAML",
        "fragment",
        "list",
        "lines",
        "quoted",
        "signature",
        "hook",
        "hook of Feishu",
        "hook of Lark",
        "with a tag",
        "no secret",
        "JSON in JSON",
        "TOML",
        "blocks",
        "netrc",
        "line ends as repr writes them",
        "no JSON",
        "deep",
    ],
)
def test_json(value: str, shown: str) -> None:
    assert redact.environment({"SM_HPS": value}) == {"SM_HPS": shown}
    assert redact.argv(["--config", value]) == ("--config", shown)


@pytest.mark.one_python
def test_hiding_takes_no_long_time() -> None:
    """A pattern that backtracks would hang on words like these."""
    for command in (
        "A='" * 50_000,
        'A="\\"' * 50_000,
        "--a " * 50_000,
        "a" * 100_000,
        "-a" + " " * 100_000,
        "--token " * 50_000,
        "A=A=" * 50_000,
    ):
        redact.argv(["sh", "-c", f"{command} x"])
    for word in ("://" * 100_000, "://" + ":" * 100_000, "://" + "a:" * 50_000, "-" * 100_000, "_" * 100_000):
        redact.argv([word, f"{word}=x"])


@pytest.mark.parametrize("name", ["GITHUB_PAT", "--pat", "--pw", "DB_PW", "SLACK_JWT"])
def test_short_secret_names(name: str) -> None:
    assert forms.is_secret(name)


@helpers.for_each(
    [
        (["https://hunter2@host/x.git"], ["https://***@host/x.git"]),
        (["git+https://hunter2@host/x", "HTTP://hunter2@host"], ["git+https://***@host/x", "HTTP://***@host"]),
        (["https://hunter2:@host/", "https://hunter2:x-oauth-basic@host/"], ["https://***:@host/", "https://***:***@host/"]),
        (["https://host/?token=hunter2&n=1"], ["https://host/?token=***&n=1"]),
        (["https://host/?X-Amz-Signature=hunter2&sig=hunter2"], ["https://host/?X-Amz-Signature=***&sig=***"]),
        # Users, not what lets them in.
        (["ssh://git@host/x", "postgres://user@db/x"], ["ssh://git@host/x", "postgres://user@db/x"]),
        (["-H", "Authorization: Bearer hunter2"], ["-H", "Authorization: Bearer ***"]),
        (["--header=authorization: hunter2"], ["--header=authorization: ***"]),
        (["X-Api-Key: hunter2", "Accept: text/html"], ["X-Api-Key: ***", "Accept: text/html"]),
        (["--key", "hunter2", "--wandb.key=hunter2"], ["--key", "***", "--wandb.key=***"]),
        (["--pw", "hunter2", "--pw=hunter2"], ["--pw", "***", "--pw=***"]),
        (["--key", "/etc/tls/key.pem", "--key=7"], ["--key", "/etc/tls/key.pem", "--key=7"]),
        (["--wandb-key", "0123456789abcdef0123456789abcdef01234567"], ["--wandb-key", "***"]),
        (["-p", "Hunter2!hunter2"], ["-p", "***"]),
        (["sshpass", "-p", "hunter2", "ssh", "-p", "2222", "host"], ["sshpass", "-p", "***", "ssh", "-p", "2222", "host"]),
        (["-p", "29500", "-p", "src/Data_v2/x1", "-p", "bf16"], ["-p", "29500", "-p", "src/Data_v2/x1", "-p", "bf16"]),
        (["--sort_key", "length", "--primary-key=user_id_2"], ["--sort_key", "length", "--primary-key=user_id_2"]),
        (["/bin/mysql", "-uroot", "-phunter 2", "db"], ["/bin/mysql", "-uroot", "-p***", "db"]),
        (["curl", "-u", "a:hunter2", "-b", "c=hunter2", "--user=a:b"], ["curl", "-u", "***", "-b", "***", "--user=***"]),
        (["curl", "-H", "Cookie: a=hunter2"], ["curl", "-H", "Cookie: ***"]),
        (["redis-cli", "-a", "hunter2", "-p", "6379"], ["redis-cli", "-a", "***", "-p", "6379"]),
        (["docker", "login", "-u", "me", "-p", "hunter2", "x"], ["docker", "login", "-u", "me", "-p", "***", "x"]),
        (["docker", "run", "-p", "8080:80", "login"], ["docker", "run", "-p", "8080:80", "login"]),
        (["/bin/obsutil", "config", "-i=hunter2", "-k=hunter2"], ["/bin/obsutil", "config", "-i=***", "-k=***"]),
        (["aws", "configure", "set", "aws_secret_access_key", "hunter2"], ["aws", "configure", "set", "aws_secret_access_key", "***"]),
        (["export", "TOKEN", "hunter2", "x"], ["export", "TOKEN", "***", "x"]),
        (["--xml", "<a><password>hunter2</password></a>"], ["--xml", "<a><password>***</password></a>"]),
        (["--env=HF_TOKEN=hunter2", "--x=wandb.api_key=hunter2"], ["--env=HF_TOKEN=***", "--x=wandb.api_key=***"]),
        (["--export=ALL,TOKEN=hunter2,A=1", "--export", "ALL,TOKEN=hunter2"], ["--export=ALL,TOKEN=***,A=1", "--export", "ALL,TOKEN=***"]),
        (["--conn=AccountName=a;AccountKey=hunter2==;E=x"], ["--conn=AccountName=a;AccountKey=***;E=x"]),
        (["--ak", "HPUAXQ8K2ZJ5V7NCEXMP", "--obs.sk=qW8eR4tY6uI0oP2aS5dF7gH9jK1lZ3xC4vB6nM8Q"], ["--ak", "***", "--obs.sk=***"]),
        (["--sk", "sklearn", "--moe-token-dispatcher-type", "alltoall"], ["--sk", "sklearn", "--moe-token-dispatcher-type", "alltoall"]),
        (["--set=lr=0.1 password=hunter2 x=1"], ["--set=lr=0.1 password=*** x=1"]),
        (["--set=pad_token=0,key=1", "--x=a=b;c=d"], ["--set=pad_token=0,key=1", "--x=a=b;c=d"]),
        (["set", "lr", "0.1", "--set", "token", "to"], ["set", "lr", "0.1", "--set", "token", "to"]),
        (["curl", "-sSfu", "me:hunter2", "x"], ["curl", "-sSfu", "***", "x"]),
        (["npm", "config", "set", "//r/:_authToken", "hunter2"], ["npm", "config", "set", "//r/:_authToken", "***"]),
        (
            ["az", "login", "--service-principal", "-u", "u", "-p", "hunter2"],
            ["az", "login", "--service-principal", "-u", "u", "-p", "***"],
        ),
        (
            ["rclone", "config", "create", "n", "s3", "access_key_id", "hunter2", "secret_access_key", "hunter2", "region", "x"],
            ["rclone", "config", "create", "n", "s3", "access_key_id", "***", "secret_access_key", "***", "region", "x"],
        ),
        (
            ["kubectl", "create", "secret", "generic", "x", "--from-literal=key=hunter2", "--from-literal", "b=hunter2"],
            ["kubectl", "create", "secret", "generic", "x", "--from-literal=key=***", "--from-literal", "b=***"],
        ),
        (["python", "-u", "x.py", "curl"], ["python", "-u", "x.py", "curl"]),
    ]
)
def test_secrets_in_other_forms(words: list[str], shown: list[str]) -> None:
    assert redact.argv(words) == tuple(shown)
    assert redact.argv(redact.argv(words)) == tuple(shown)


@pytest.mark.parametrize("option", ["-c", "-lc", "-ec", "-euxc"])
def test_secrets_in_the_commands_of_a_shell(option: str) -> None:
    for command, shown in (
        ("python train.py --token hunter2 --lr 1", "python train.py --token *** --lr 1"),
        ("export HF_TOKEN=hunter2; python train.py", "export HF_TOKEN=***; python train.py"),
        ("HF_TOKEN='hunter2 2' python train.py && echo  x", "HF_TOKEN='***' python train.py && echo  x"),
        ("cd /x\nexport HF_TOKEN=hunter2\npython train.py\n", "cd /x\nexport HF_TOKEN=***\npython train.py\n"),
        ('exec "$0"  "$@"', 'exec "$0"  "$@"'),
        ("mysql -phunter2 <x; curl -u a:hunter2 x", "mysql -p*** <x; curl -u *** x"),
        (
            "docker login -p hunter2 x && aws configure set aws_secret_access_key hunter2",
            "docker login -p *** x && aws configure set aws_secret_access_key ***",
        ),
        ("python train.py --tokenizer bpe  --pad-token x", "python train.py --tokenizer bpe  --pad-token x"),
    ):
        assert redact.argv(["bash", option, command, "x"]) == ("bash", option, shown, "x")


def test_a_setting_that_holds_a_header() -> None:
    assert "hunter2" not in redact.text("curl -H 'Authorization: Bearer hunter2'")
    assert "hunter2" not in redact.text("Authorization: Bearer hunter2")
    assert redact.text("a  b") == "a  b"


def test_variables_that_may_hold_keys() -> None:
    env = {"WANDB_KEY": "0123456789abcdef0123456789abcdef01234567", "SORT_KEY": "length", "HEADER": "Authorization: Bearer hunter2"}
    assert redact.environment(env) == {"WANDB_KEY": "***", "SORT_KEY": "length", "HEADER": "Authorization: Bearer ***"}


def test_words_are_those_of_shlex() -> None:
    draw = random.Random(1)
    for _ in range(20000):
        text = "".join(draw.choices("ab '\"\\\n\t=-é\r", k=draw.randrange(12)))
        try:
            words = shlex.split(text)
        except ValueError:
            words = []
        assert redact._words(text) == words, text


@pytest.mark.parametrize("pattern", [*patterns.PATTERNS, *patterns.OWN])
@hypothesis.given(data=strategies.data())
@hypothesis.settings(max_examples=40)
def test_the_quick_look_misses_no_token(pattern: str, data: strategies.DataObject) -> None:
    token = data.draw(strategies.from_regex(pattern, fullmatch=True))
    for text in (token, f"a={token}b", f"/{token} 1"):
        assert redact.tokens(text) == patterns.TOKENS.sub(forms.HIDDEN, text)


NO_TOKENS = (
    "/data/hf_cache/datasets--task-runner-of-a-long-name/AC/SK",
    "host-0.svc-of-the-job.default.svc.cluster.local:29500",
    "--global-batch-size-per-data-parallel-rank=8",
    "i-0123456789abcdef0 0123456789ab us-east-1 17-us2",
    "12345678-90ab-cdef-1234-567890abcdef 1234567890:12345",
    "eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgM119",
    "ghcr.io/org/image:v1@sha256:" + "0a" * 32,
    "SG.x MNO.p.q NCCL_SOCKET_IFNAME=eth0 AKIA xoxb",
    "s3://bucket/xox/hf_model npm_config_cache gsk_1",
)


def test_what_is_no_token_loads_no_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ranklaunch.redact.patterns", None)
    assert redact.argv(NO_TOKENS) == NO_TOKENS
    assert redact.environment(dict(zip(NO_TOKENS, NO_TOKENS))) == dict(zip(NO_TOKENS, NO_TOKENS))
