"""Faults from universalmutator's rules: each a change within one line of a source file."""

import ast
import contextlib
import dataclasses
import io
import tokenize

import tree_sitter
import tree_sitter_cpp
from universalmutator import mutator

# Texts are not faults: what messages say is compared in few tests, and names in files are checked
# by every loader's test.
TEXTS = {
    "comment",
    "string_literal",
    "string_content",
    "raw_string_literal",
    "char_literal",
    "system_lib_string",
}
LOOPS = {"for_statement", "for_range_loop", "while_statement", "do_statement"}
# Statements that can be taken out. Not a declaration, and not a return, after which anything might
# happen.
REMOVABLE = LOOPS | {
    "expression_statement",
    "if_statement",
    "throw_statement",
    "break_statement",
    "continue_statement",
}
# Neither what the preprocessor reads nor what only the compiler checks.
NOT_RUN = {"preproc_include", "preproc_def", "preproc_call", "static_assert_declaration"}


@dataclasses.dataclass
class Mutant:
    file: str  # relative to the project
    line: int  # from 1
    begin: int  # bytes of the file that are replaced
    end: int
    original: str
    replacement: str
    text: str  # the whole line, without its indentation
    mutated: str  # that line after the change
    number: int = -1
    level: int = 0  # which of the enclosing expressions the switch is put around
    alone: bool = False  # no switch possible: compiled by itself

    @property
    def python(self):
        return self.file.endswith(".py")

    def changed(self, source):
        return source[: self.begin] + self.replacement.encode() + source[self.end :]

    def key(self):
        return f"{self.file}: {self.text}  =>  {self.mutated}"

    def any_key(self):
        return f"{self.file}: {self.text}  =>  *"

    def describe(self):
        return f"{self.file}:{self.line}: {self.text}  =>  {self.mutated}"


PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def parse(source):
    return PARSER.parse(source)


def ancestors(node):
    while node is not None:
        yield node
        node = node.parent


def smallest(tree, begin, end):
    return tree.root_node.descendant_for_byte_range(begin, max(begin, end))


def difference(old, new):
    """The bytes of `old` that differ, and what stands in their place."""
    begin = 0
    while begin < min(len(old), len(new)) and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < min(len(old), len(new)) - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    return begin, len(old) - end, new[begin : len(new) - end]


def in_loop(node):
    """Whether a break or continue may stand here."""
    inner = next(
        (
            each.type
            for each in ancestors(node)
            if each.type in LOOPS | {"lambda_expression", "function_definition"}
        ),
        "",
    )
    return inner in LOOPS


def ends_loop(node, mutant):
    """Whether nothing follows in the loop, so that `continue` changes nothing."""
    block = next((each for each in ancestors(node) if each.type in LOOPS | {"compound_statement"}), None)
    if block is None or block.type in LOOPS:
        return True
    return block.parent.type in LOOPS and all(
        child.start_byte < mutant.begin for child in block.named_children
    )


def cpp_filter(source):
    tree = parse(source)
    lines = source.decode().splitlines()

    def wanted(mutant):
        node = smallest(tree, mutant.begin, mutant.end)
        kinds = {each.type for each in ancestors(node)}
        if kinds & (TEXTS | NOT_RUN) or '"' in mutant.original:
            return False
        if "".join(mutant.original.split()) == "".join(mutant.replacement.split()):
            return False
        if "return" in mutant.text.split() and "return" not in mutant.mutated:  # not an expression any more
            return False
        if "template_argument_list" in kinds or ("parameter_list" in kinds and "," in mutant.original):
            return False
        if mutant.replacement.startswith("/*") and node.type not in REMOVABLE:
            return False
        if mutant.replacement.strip() == "continue;" and ends_loop(node, mutant):
            return False
        if mutant.replacement.strip() in ("break;", "continue;") and not in_loop(node):
            return False
        if any(
            each.type in ("<", ">") and each.parent.type.startswith("template_")
            for each in touched(node, mutant)
        ):
            return False
        # A loop that counts by one up to an end ends at the same place with < and with !=.
        return not (mutant.original == "<" and mutant.replacement == "!=" and "++" in lines[mutant.line - 1])

    return wanted


def is_sound(root, mutant):
    """Whether a fault in C++ still has the form of a program; slow, so only those drawn are asked."""
    return mutant.python or not parse(mutant.changed((root / mutant.file).read_bytes())).root_node.has_error


def touched(node, mutant):
    """The smallest nodes next to the change."""
    if not node.children:
        return [node]
    near = [each for each in node.children if each.start_byte <= mutant.end and each.end_byte >= mutant.begin]
    return [leaf for each in near for leaf in touched(each, mutant)]


class Bare(ast.NodeTransformer):
    """Drops annotations and docstrings, which change nothing."""

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.returns = None
        return self.visit_body(node)

    def visit_body(self, node):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body[0] = ast.Pass()
        return node

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        return self.visit_body(node)

    visit_Module = visit_ClassDef

    def visit_arg(self, node):
        node.annotation = None
        return node


def bare(source):
    return ast.dump(Bare().visit(ast.parse(source)))


def python_filter(source):
    before = bare(source)
    offsets = line_offsets(source)
    texts = []
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    text_lines = source.decode().splitlines(keepends=True)
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type in kinds:
            ends = [
                offsets[row - 1] + len(text_lines[row - 1][:column].encode())
                for row, column in (token.start, token.end)
            ]
            texts.append(ends)

    def wanted(mutant):
        if any(begin <= mutant.begin and mutant.end <= end for begin, end in texts):
            return False
        try:
            return bare(mutant.changed(source)) != before
        except (SyntaxError, ValueError):
            return False

    return wanted


def line_offsets(source):
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def mutants_of(root, file):
    """The mutants of one file, each once, in the order of their places."""
    source = (root / file).read_bytes()
    offsets, lines = line_offsets(source), source.decode().splitlines(keepends=True)
    rules = ["universal", "python"] if file.endswith(".py") else ["universal", "c_like", "cpp"]
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(lines, ruleFiles=[rule + ".rules" for rule in rules], ignorePatterns=[])
    found = {}
    for row, text, *_ in made:
        old, new = lines[row - 1].rstrip("\n").encode(), text.rstrip("\n").encode()
        begin, end, replacement = difference(old, new)
        if old[begin:end].split() == replacement.split():
            continue
        at = offsets[row - 1] + begin, offsets[row - 1] + end
        words = [" ".join(line.decode().split()) for line in (old, new)]
        found[(*at, replacement)] = Mutant(
            file, row, *at, old[begin:end].decode(), replacement.decode(), *words
        )
    wanted = (python_filter if file.endswith(".py") else cpp_filter)(source)
    return [mutant for _, mutant in sorted(found.items()) if wanted(mutant)]
