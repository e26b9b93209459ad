"""Faults behind a switch: (headlane_mutant(17) ? (planted) : (original)), as many in one file as are wanted."""

import re

from generate import ancestors, parse, smallest

EXPRESSIONS = {
    "assignment_expression", "binary_expression", "call_expression", "cast_expression", "conditional_expression",
    "false", "field_expression", "identifier", "null", "number_literal", "parenthesized_expression",
    "pointer_expression", "qualified_identifier", "subscript_expression", "true", "unary_expression",
    "update_expression",
}  # fmt: skip
STATEMENTS = {
    "break_statement", "continue_statement", "do_statement", "expression_statement", "for_range_loop",
    "for_statement", "if_statement", "return_statement", "throw_statement", "while_statement",
}  # fmt: skip
LOOPS = {"for_statement", "for_range_loop", "while_statement", "do_statement", "switch_statement"}
# Nodes that must be constant expressions.
CONSTANT = {
    "template_argument_list", "array_declarator", "enumerator", "static_assert_declaration", "noexcept", "preproc_if",
    "preproc_def", "requires_clause", "template_parameter_list", "bitfield_clause", "alignas_qualifier",
    "type_descriptor",
}  # fmt: skip
COMMENT = re.compile(rb"//[^\n]*")


def is_constant(node):
    for each in ancestors(node):
        if each.type in CONSTANT:
            return True
        if each.type in {"declaration", "field_declaration"}:
            return any(child.text in (b"constexpr", b"static constexpr") for child in each.children)
        if each.type in {"compound_statement", "lambda_expression"}:
            return False
    return False


def is_called(node):
    parent = node.parent
    return (
        parent is not None
        and parent.type == "call_expression"
        and parent.child_by_field_name("function") == node
    )


def parses(code):
    return not parse(b"void f() { " + code + b" }").root_node.has_error


def one_line(code):
    return b" ".join(COMMENT.sub(b"", code).split(b"\n"))


class Place:
    """Where the switch of a mutant goes: bytes begin to end of the file become text(original)."""

    def __init__(self, begin, end, text):
        self.begin, self.end, self.text = begin, end, text


def inserted(tree, source, mutant):
    """A break or continue on a line of its own, where a statement may stand."""
    node = smallest(tree, mutant.begin, mutant.begin)
    block = next((each for each in ancestors(node) if each.type == "compound_statement"), None)
    if block is None or b"//" in source[source.rfind(b"\n", 0, mutant.begin) + 1 : mutant.begin]:
        return []
    if any(child.start_byte < mutant.begin < child.end_byte for child in block.children):
        return []
    inner = next(
        (
            each
            for each in ancestors(block)
            if each.type in LOOPS | {"lambda_expression", "function_definition"}
        ),
        block,
    )
    if inner.type not in LOOPS:
        return []
    new = f" if (headlane_mutant({mutant.number})) {mutant.replacement.strip()}".encode()
    return [Place(mutant.begin, mutant.begin, lambda original: original + new)]


def places(tree, source, mutant):
    """Where the switch may go, from the smallest expression to the statement."""
    if mutant.begin == mutant.end and mutant.replacement.strip() in ("break;", "continue;"):
        return inserted(tree, source, mutant)
    node = smallest(tree, mutant.begin, mutant.end)
    if is_constant(node):
        return []
    found = []
    for each in ancestors(node):
        begin, end = each.start_byte, each.end_byte
        changed = one_line(
            source[begin : mutant.begin] + mutant.replacement.encode() + source[mutant.end : end]
        )
        switch = b"headlane_mutant(%d)" % mutant.number
        form = None
        if each.type in EXPRESSIONS and not is_called(each) and parses(b"x = (" + changed + b");"):
            form = b"(%s ? (%s) : (%s))"
        elif each.type in STATEMENTS and parses(changed):
            form = b"{ if (%s) { %s } else { %s } }"
        if form:
            text = lambda original, form=form, s=switch, c=changed: form % (s, c, original)  # noqa: E731
            found.append(Place(begin, end, text))
        if each.type in {"function_definition", "lambda_expression"}:
            break
    return found


def probe(tree, mutant):
    """For a mutant without a switch: a mark at the beginning of the function around it."""
    for each in ancestors(smallest(tree, mutant.begin, mutant.end)):
        if each.type == "function_definition":
            body = each.child_by_field_name("body")
            if body is not None and body.type == "compound_statement" and body.start_byte < mutant.begin:
                at = body.start_byte + 1
                mark = b" static_cast<void>(headlane_mutant(%d));" % mutant.number
                return [Place(at, at, lambda original, mark=mark: original + mark)]
    return []


def planted(source, mutants):
    """The file with a switch for each mutant; those that have no place left are marked `alone`."""
    tree = parse(source)
    todo = []
    for mutant in mutants:
        ways = [] if mutant.alone else places(tree, source, mutant)
        if mutant.level >= len(ways):
            mutant.alone = True
            todo += probe(tree, mutant) if mutant.level < 100 else []
        else:
            todo.append(ways[mutant.level])
    todo.sort(key=lambda place: (place.begin, -place.end))

    def render(begin, end, inside):
        out, at, index = b"", begin, 0
        while index < len(inside):
            first = inside[index]
            group = [
                each for each in inside[index + 1 :] if each.begin >= first.begin and each.end <= first.end
            ]
            out += source[at : first.begin] + first.text(
                render(first.begin, first.end, group) if first.end > first.begin else b""
            )
            if first.end == first.begin:
                group = []
            at, index = first.end, index + 1 + len(group)
        return out + source[at:end]

    return render(0, len(source), todo)


def intervals(code):
    """Of each switch in a planted file: number to its first byte, the end of the fault's own text, its last byte."""
    found = {}
    for match in re.finditer(rb"headlane_mutant\((\d+)\)", code):
        at = match.start() - 1
        own = re.compile(rb" \? |\) ").match(code, match.end())
        inner = closing(code, own.end()) if own and code[own.end() : own.end() + 1] in b"({" else match.end()
        found[int(match.group(1))] = (at, inner, closing(code, at))
    return found


def closing(code, at):
    """The bracket that closes the one at `at`."""
    depth = 0
    for end in range(at, len(code)):
        depth += {40: 1, 41: -1, 123: 1, 125: -1}.get(code[end], 0)
        if depth == 0:
            return end
    return len(code)


def blamed(code, line, column):
    """The mutant that an error at this place comes from, the innermost around it or else the last one before it, and
    whether the error is in its own text. (None, False): the file has no switch, the fault is in a header."""
    offset = sum(len(each) for each in code.splitlines(keepends=True)[: line - 1]) + column - 1
    where = intervals(code)
    if not where:
        return None, False
    around = [(end - begin, number) for number, (begin, _, end) in where.items() if begin <= offset <= end]
    if around:
        number = min(around)[1]
        begin, inner, _ = where[number]
        own = code.find(b")", begin) + 2 < offset <= inner
        return number, own
    before = [(begin, number) for number, (begin, _, _) in where.items() if begin <= offset]
    return (
        max(before)[1] if before else min((begin, number) for number, (begin, _, _) in where.items())[1]
    ), False
