"""Specifications before the judges: Kubernetes' own schemas, those of custom resources with their CEL rules, ModelArts' client."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import chart_schemas
import pytest
import spec_cases

from ranklaunch.specs.model import OF_KUBERNETES

pytestmark = pytest.mark.specs

CRDS = chart_schemas.folder()
RENDERED = spec_cases.accepted(*OF_KUBERNETES)
by_case = pytest.mark.parametrize("case", RENDERED, ids=spec_cases.case_id)

Object = dict[str, Any]


def core(objects: list[Object]) -> list[Object]:
    """Objects of Kubernetes itself, and the pods of the others as one: a PodTemplate, which is checked in full."""
    found = [each for each in objects if each["apiVersion"] in ("v1", "batch/v1")]
    return found + [{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": pod} for pod in pods(objects)]


def pods(value: Any) -> Iterator[Object]:
    """Every pod template below a value: a map with a spec that has containers."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}) if isinstance(value.get("spec"), dict) else False:
            yield value
        for each in value.values():
            yield from pods(each)
    elif isinstance(value, list):
        for each in value:
            yield from pods(each)


def validate(each: Object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate

        kubernetes_validate.validate(each, "1.33", strict=True)


@by_case
def test_kubernetes_own_schemas(case: Path) -> None:
    objects = spec_cases.objects_in(spec_cases.text_of(case))
    assert list(pods(objects)) or case.name == "trainjob_runtime"
    for each in core(objects):
        validate(each)


def test_a_field_that_does_not_exist_is_noticed() -> None:
    service, job = spec_cases.objects_in(spec_cases.text_of(spec_cases.FOLDER / "job_gpu"))
    next(pods(job))["spec"]["gracePeriod"] = 3
    with pytest.raises(Exception, match="gracePeriod"):
        validate(job)
    validate(service)


if CRDS:  # no part of the repository: CONTRIBUTING.md

    def versions() -> Iterator[tuple[str, str, str, Object]]:
        """(file, kind, apiVersion, schema)."""
        import yaml

        for path in sorted(CRDS.glob("*.yaml")):
            crd = yaml.safe_load(path.read_text(encoding="utf-8"))
            for version in crd["spec"]["versions"]:
                api = f"{crd['spec']['group']}/{version['name']}"
                yield path.name, crd["spec"]["names"]["kind"], api, version["schema"]["openAPIV3Schema"]

    @pytest.fixture(scope="module")
    def schemas() -> list[tuple[str, str, str, Object]]:
        return [(name, kind, api, strict(schema)) for name, kind, api, schema in versions()]

    def strict(schema: Any) -> Any:
        """As an API server reads it: a field that is not named is refused, and some mean more than JSON Schema says."""
        if isinstance(schema, list):
            return [strict(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("x-kubernetes-int-or-string"):
            return {"type": ["integer", "string"]}
        found = {
            name: {key: strict(value) for key, value in each.items()} if name == "properties" else strict(each)
            for name, each in schema.items()
        }
        if "properties" in found and "additionalProperties" not in found and not schema.get("x-kubernetes-preserve-unknown-fields"):
            found["additionalProperties"] = False
        return found

    def of(schemas: list[tuple[str, str, str, Object]], each: Object) -> list[tuple[str, Object]]:
        return [(name, schema) for name, kind, api, schema in schemas if (kind, api) == (each["kind"], each["apiVersion"])]

    def checked(each: Object, schema: Object) -> None:
        import jsonschema

        allowed = {**schema, "properties": {**schema["properties"], "metadata": {"type": "object"}}}
        jsonschema.Draft202012Validator(allowed).validate(each)

    @by_case
    def test_schemas_of_custom_resources(case: Path, schemas: list[tuple[str, str, str, Object]]) -> None:
        objects = [each for each in spec_cases.objects_in(spec_cases.text_of(case)) if each["apiVersion"] not in ("v1", "batch/v1")]
        for each in objects:
            found = of(schemas, each)
            assert found, each["kind"]
            for _, schema in found:
                checked(each, schema)
                assert list(broken_rules(schema, each)) == []

    def test_schemas_refuse_what_is_not_named(schemas: list[tuple[str, str, str, Object]]) -> None:
        import jsonschema

        (job,) = spec_cases.objects_in(spec_cases.text_of(spec_cases.FOLDER / "volcano_gpu_torchrun"))
        for edit in (lambda: job["spec"].update(minAvailble=3), lambda: job["spec"].update(minAvailable="3")):
            edit()
            for _, schema in of(schemas, job):
                with pytest.raises(jsonschema.ValidationError):
                    checked(job, schema)
            job["spec"].pop("minAvailble", None)

    def test_rules_in_cel_are_judged(schemas: list[tuple[str, str, str, Object]]) -> None:
        runtime, job = spec_cases.objects_in(spec_cases.text_of(spec_cases.FOLDER / "trainjob_gpu"))
        job["metadata"]["name"] = "1demo"
        runtime["spec"]["mlPolicy"].update(torch={}, mpi={})
        for each in (job, runtime):
            assert [rule for _, schema in of(schemas, each) for rule in broken_rules(schema, each)]

    def broken_rules(schema: Object, value: Any) -> Iterator[str]:
        """Rules that do not hold for a new object; those about a change of one (oldSelf) have nothing to say."""
        for rule in schema.get("x-kubernetes-validations", []):
            if "oldSelf" not in rule["rule"] and not holds(rule["rule"], value):
                yield rule["rule"]
        if isinstance(value, dict):
            for name, each in value.items():
                yield from broken_rules(schema.get("properties", {}).get(name, {}), each)
        if isinstance(value, list):
            for each in value:
                yield from broken_rules(schema.get("items", {}), each)

    def holds(rule: str, value: Any) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import celpy

            environment = celpy.Environment()
            program = environment.program(environment.compile(rule))
            return bool(program.evaluate({"self": celpy.json_to_cel(value)}))


# ModelArts


class Service(BaseHTTPRequestHandler):
    seen: list[tuple[str, dict[str, str], Object]] = []  # noqa: RUF012 - of one test's server

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).seen.append((self.path, dict(self.headers), json.loads(data)))
        answer = json.dumps({"kind": "job", "metadata": {"id": "1", "name": "llm"}}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[HTTPServer]:
    Service.seen = []
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(60)
    server.server_close()


def in_classes(body: Object) -> Any:
    """The body in the classes of ModelArts' SDK, which refuse fields that they do not know."""
    from huaweicloudsdkmodelarts.v1 import model

    def built(kind: str, value: Any) -> Any:
        if kind.startswith("list["):
            return [built(kind[5:-1], each) for each in value]
        cls = getattr(model, kind, None)
        if cls is None or not hasattr(cls, "openapi_types"):
            return value
        names = {written: name for name, written in cls.attribute_map.items()}
        unknown = set(value) - set(names)
        assert not unknown, f"{kind}: {unknown}"
        return cls(**{names[key]: built(cls.openapi_types[names[key]], each) for key, each in value.items()})

    return built(model.CreateTrainingJobRequest.openapi_types["body"], body)


@pytest.mark.parametrize("case", spec_cases.accepted("modelarts"), ids=spec_cases.case_id)
def test_body_goes_through_the_real_client(case: Path, service: HTTPServer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from huaweicloudsdkcore.auth.credentials import BasicCredentials
        from huaweicloudsdkmodelarts.v1 import CreateTrainingJobRequest, ModelArtsClient

        body = json.loads(spec_cases.text_of(case))
        built = in_classes(body)
        endpoint = f"http://127.0.0.1:{service.server_address[1]}"
        client = (
            ModelArtsClient.new_builder().with_credentials(BasicCredentials("key", "secret", "project")).with_endpoint(endpoint).build()
        )
        client.create_training_job(CreateTrainingJobRequest(body=built))
    ((path, headers, sent),) = Service.seen
    assert path.rstrip("/") == "/v2/project/training-jobs"
    assert "Authorization" in headers
    assert sent == body


def test_classes_of_the_client_refuse_unknown_fields() -> None:
    with pytest.raises(AssertionError, match="nodecount"):
        in_classes({"kind": "job", "spec": {"resource": {"nodecount": 2}}})
