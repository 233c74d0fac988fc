"""Specifications before the judges: Kubernetes' own schemas, those of custom resources with their CEL rules, ModelArts' client."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import spec_cases

from ranklaunch.specs.model import OF_KUBERNETES
from testbench.judges.charts import Object
from testbench.judges.schemas import broken_rules, folder, is_core, misfits, misfits_of_core, misfits_of_custom, pod_templates, schemas_of
from testbench.serving import serving

pytestmark = pytest.mark.specs

RENDERED = spec_cases.accepted(*OF_KUBERNETES)
by_case = pytest.mark.parametrize("case", RENDERED, ids=spec_cases.case_id)


@by_case
def test_kubernetes_own_schemas(case: Path) -> None:
    objects = spec_cases.objects_in(spec_cases.text_of(case))
    assert list(pod_templates(objects)) or case.stem == "trainjob_runtime"
    assert [misfit for each in objects for misfit in misfits_of_core(each)] == []


def test_a_field_that_does_not_exist_is_noticed() -> None:
    service, job = spec_cases.objects_in(spec_cases.text_of(spec_cases.case_of("job_gpu")))
    next(pod_templates(job))["spec"]["gracePeriod"] = 3
    oldest, newest = misfits_of_core(job)
    assert "gracePeriod" in oldest
    assert "gracePeriod" in newest
    assert misfits_of_core(service) == []


if folder():  # no part of the repository: CONTRIBUTING.md

    def schemas_for(each: Object) -> list[Object]:
        return schemas_of(each["apiVersion"], each["kind"])

    @by_case
    def test_schemas_of_custom_resources(case: Path) -> None:
        for each in spec_cases.objects_in(spec_cases.text_of(case)):
            if not is_core(each):
                assert misfits_of_custom(each) == []
                assert broken_rules(each) == []

    def test_schemas_refuse_what_is_not_named() -> None:
        (job,) = spec_cases.objects_in(spec_cases.text_of(spec_cases.case_of("volcano_gpu_torchrun")))
        for edit in ({"minAvailble": 3}, {"minAvailable": "3"}):
            edited = {**job, "spec": {**job["spec"], **edit}}
            found = [list(misfits(edited, schema)) for schema in schemas_for(job)]
            assert found
            assert all(found)

    def test_rules_in_cel_are_judged() -> None:
        runtime, job = spec_cases.objects_in(spec_cases.text_of(spec_cases.case_of("trainjob_gpu")))
        job["metadata"]["name"] = "1demo"
        runtime["spec"]["mlPolicy"].update(torch={}, mpi={})
        for each in (job, runtime):
            assert broken_rules(each)


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
    with serving(Service) as server:
        yield server


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
