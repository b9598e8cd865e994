"""Count the numbers that tune the core: module constants, and numbers in bodies other than -1, 0, 0.5, 1, 2 and 10.

python .ci/constants.py           the count of each folder
python .ci/constants.py --list    each number, with its file and line
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    *("solvers", "inference", "fitting", "selection", "models", "approximations", "blocks", "local"),
    *("lattices", "sparse", "kernels", "likelihoods", "rows"),
)
PLAIN = {0, 0.5, 1, 2, 10}


def _numbers(node: ast.AST) -> Iterator[ast.Constant]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and type(one.value) in (int, float):
            yield one


def _places(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each module constant that holds a number, and of each other number."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            target = ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
            if target.lstrip("_").isupper() and statement.value is not None and any(_numbers(statement.value)):
                yield statement.lineno, f"{target} = {ast.unparse(statement.value)}"
                continue
        for number in _numbers(statement):
            if number.value not in PLAIN:
                yield number.lineno, ast.unparse(number)


def main() -> None:
    """Run the command."""
    counts = Counter[str]()
    for folder in FOLDERS:
        package = ROOT / "rfgp"
        for path in sorted([*(package / folder).rglob("*.py"), *package.glob(f"{folder}.py")]):
            for line, text in _places(ast.parse(path.read_text(encoding="utf-8"))):
                counts[folder] += 1
                if "--list" in sys.argv:
                    print(f"{path.relative_to(ROOT)}:{line}: {text}")
    for folder, count in [*counts.items(), ("all", counts.total())]:
        print(f"{folder:15} {count:5}")


if __name__ == "__main__":
    main()
