"""Renders the overlays with kustomize and holds what comes out against the schemas of Kubernetes, of the Prometheus operator and of Multus.

python3 check.py KUBERNETES-VERSION, with kubernetes-validate installed; kustomize is `kustomize`, or the one in kubectl.
"""

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

HERE = Path(__file__).parent
KUSTOMIZE = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
OWN = {kind: json.loads((HERE / "schema" / f"{kind}.json").read_text()) for kind in ("PodMonitor", "NetworkAttachmentDefinition")}


def check(document: dict, version: str) -> None:
    """Raises where the document is not what its kind may be."""
    if document["kind"] in OWN:
        jsonschema.Draft202012Validator(OWN[document["kind"]]).validate(document)
        if "config" in document["spec"]:
            assert {"cniVersion", "type"} <= json.loads(document["spec"]["config"]).keys(), "a configuration of CNI"
    else:
        kubernetes_validate.validate(document, version, strict=True)


def misspelt(document: dict) -> dict:
    """The same with a field that nobody knows."""
    wrong = copy.deepcopy(document)
    wrong["spec"]["linkspanMisspelt"] = True
    return wrong


def main() -> None:
    version = sys.argv[1]
    seen = set()
    for overlay in ("base", "overlays/nvidia", "overlays/amd"):
        rendered = subprocess.run([*KUSTOMIZE, HERE / overlay], check=True, capture_output=True, text=True).stdout
        documents = list(yaml.safe_load_all(rendered))
        for document in documents:
            check(document, version)
            seen.add(document["kind"])
            try:
                check(misspelt(document), version)
            except (jsonschema.ValidationError, kubernetes_validate.ValidationError):
                continue
            raise AssertionError(f"{document['kind']}: a misspelt field is taken")
        # What mounts a volume has it, and a monitor names a port that there is.
        for document in documents:
            if document["kind"] == "Job":
                pod = document["spec"]["template"]["spec"]
                containers = pod["initContainers"] + pod["containers"]
                mounts = {mount["name"] for container in containers for mount in container["volumeMounts"]}
                assert mounts <= {volume["name"] for volume in pod["volumes"]}, mounts
                # doctor comes behind what brings it, and has the devices of the container that it judges for.
                names = [container["name"] for container in pod["initContainers"]]
                assert names.index("linkspan") < names.index("doctor"), names
                doctor, train = (next(c for c in containers if c["name"] == name) for name in ("doctor", "train"))
                for key in ("resources", "securityContext"):
                    assert doctor.get(key) == train.get(key), f"{key}: doctor {doctor.get(key)}, train {train.get(key)}"
                ports = {port["name"] for container in containers for port in container.get("ports", [])}
        monitors = [document["spec"] for document in documents if document["kind"] == "PodMonitor"]
        assert all(end["port"] in ports for monitor in monitors for end in monitor["podMetricsEndpoints"]), ports
        print(f"ok   {overlay}: {', '.join(document['kind'] for document in documents)}")
    assert seen == {"Service", "Job", "PodMonitor", "NetworkAttachmentDefinition"}, seen


main()
