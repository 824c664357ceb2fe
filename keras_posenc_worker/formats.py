"""Schemas of file formats, loaded without their runtimes."""

import functools
import sys
import types
from importlib import machinery, util
from pathlib import Path
from typing import Any


@functools.cache
def litert_schema() -> Any:
    """Returns the schema of LiteRT files."""
    return load_file("ai_edge_litert", "schema_py_generated.py")


def unpack(content: Any) -> Any:
    """Returns a LiteRT file's bytes as an object that can be changed."""
    schema = litert_schema()
    try:
        return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    except ValueError as error:  # NumPy's, of a vector beyond the file's end
        raise EOFError(f"{error}") from error


def pack(model: Any) -> bytes:
    """Returns a file's bytes, with equal arrays, as of scales, stored once."""
    import flatbuffers

    class Builder(flatbuffers.Builder):
        def CreateNumpyVector(self, x: Any) -> int:
            if x.nbytes > 2**20:  # a copy would need memory
                return super().CreateNumpyVector(x)
            key = x.dtype.str, x.tobytes()
            if key not in starts:
                starts[key] = super().CreateNumpyVector(x)
            return starts[key]

    starts: dict[tuple[str, bytes], int] = {}
    builder = Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def load_file(package: str, file: str) -> Any:
    """Imports one file of a package without the package."""
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    (folder, *_) = spec.submodule_search_locations
    name = f"{package}_{Path(file).stem}"
    loader = machinery.SourceFileLoader(name, str(Path(folder, file)))
    module = types.ModuleType(name)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def without_its_init(package: str) -> None:
    """Lets modules be imported without their package's `__init__`."""
    if package in sys.modules:
        return
    spec = util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{package} is not installed")
    module = types.ModuleType(package)
    module.__spec__ = spec  # for whoever looks for it again
    module.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = module


def by_value(names: type) -> dict[int, str]:
    """Returns the names of a flatbuffer's enumeration, by their numbers."""
    return {
        value: name
        for name, value in vars(names).items()
        if isinstance(value, int)
    }
