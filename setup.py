"""What pyproject.toml cannot say: a wheel carries scenarios, topologies and the schema, too; and the public address."""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = {"scenarios": "scenarios", "topologies": "topologies",
           "emul.schema.json": "emul.schema.json", "constraints.txt": "constraints.txt", "CITATION.cff": "CITATION.cff"}
# of the checkout -> below emul/shipped, see emul.base.files: shipped


class BuildWithFiles(build_py):
    """Copies what is shipped beside the modules."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:          # the checkout has them
            return
        for source, name in SHIPPED.items():
            target = Path(self.build_lib, "emul", "shipped", name)
            if Path(source).is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)


# the project's public address stands in CITATION.cff alone
address = re.search(r"^repository-code: *(\S+)", Path("CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
setup(cmdclass={"build_py": BuildWithFiles}, project_urls={"Repository": address[1]} if address else {})
