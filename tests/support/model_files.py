"""Model files with other contents under a right checksum."""

import json

from safetensors.torch import load_file, save_file

from rfgp.saving import container


def rewrite(saved, path, change):
    """Write the file again after change(options, tensors, header), with its checksum right."""
    tensors, content = load_file(saved), saved.read_bytes()
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    entry = json.loads(metadata["rfgp"])
    header = json.loads(entry["header"])
    change(header["options"], tensors, header)
    entry["header"] = json.dumps(header, sort_keys=True)
    entry["sha256"] = container.digest(entry["header"], tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"rfgp": json.dumps(entry)})
