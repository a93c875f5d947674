#!/usr/bin/env python3
"""Writes tests/data/templates.cases.json: what Jinja2 makes of the templates in tests/data/templates and of many short ones. Run by hand.

The environment is set up as transformers does it for chat templates: sandboxed, trim_blocks and lstrip_blocks, loop controls, `tojson` as
json.dumps without escapes, `raise_exception`, `strftime_now`, and {% generation %} as a plain block. Needs Jinja2 3.1.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
NOW = 1760000000  # shown in UTC


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)
    return made


TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a \"place\" <now>", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "Ort, e.g. Köln"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "array", "items": {"type": "integer"}},
            "options": {"type": "object", "properties": {"wind": {"type": "boolean"}, "names": {"type": "array", "items": {"type": "string"}, "nullable": True}},
                        "required": ["wind"]},
            "either": {"oneOf": [{"type": "string", "description": "text"}, {"type": "number", "default": 1.5}]},
            "many": {"type": ["string", "null"]}}, "required": ["place"]}}},
    {"type": "function", "function": {"name": "clock", "description": "The time"}},
]
PLAIN = [{"role": "user", "content": "Hello, wie geht's?"}]
TALK = [
    {"role": "system", "content": "  Be brief.  "},
    {"role": "user", "content": "What is 2 + 2?\n"},
    {"role": "assistant", "content": "<think>\nsmall sum\n</think>\n\n 4 \n"},
    {"role": "user", "content": "And \u00e9\u6f22\U0001f600 <tag>?"},
]
ENDED = TALK + [{"role": "assistant", "content": "<think>\nhm\n</think>\n\nFine.", "reasoning_content": None}]
CALLS = [
    {"role": "user", "content": "Weather in Köln?"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": [1, 2], "x": None, "y": 1.0}}}]},
    {"role": "tool", "content": "{\"t\": 21}"},
    {"role": "tool", "content": "sunny"},
    {"role": "assistant", "content": "21 degrees.", "reasoning_content": "the tool said so"},
    {"role": "user", "content": "Thanks"},
]
TEXT_CALLS = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "weather", "arguments": "{}"}}, {"function": {"name": "clock", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "content": "rain"},
]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "image"}, {"type": "text", "text": "two"}]}]

SHORT = r"""
{{ 1 + 2 * 3 - 4 // 3 }}|{{ 7 / 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 2 ** 10 }}|{{ 7.5 % -2 }}|{{ 2 ** -1 }}|{{ 1e3 }}|{{ 1_000 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] }}|{{ 'ab' * 3 }}|{{ [1] * 2 }}|{{ 'a' + 'b' }}|{{ [1] + [2] }}
{{ not a }}|{{ a or 'x' }}|{{ 'y' and 0 }}|{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 1 == 1.0 }}|{{ 'a' in 'cat' }}|{{ 3 not in [1, 2] }}|{{ 'k' in {'k': 1} }}
{{ items[0] }}|{{ items[-1] }}|{{ items[1:] }}|{{ items[::-1] }}|{{ items[:-1] }}|{{ items[::2] }}|{{ items[5:1:-2] }}|{{ items[9] }}|{{ 'héllo'[1:3] }}|{{ 'héllo'[::-1] }}
{{ {'a': 1, 'b': [true, none]} }}|{{ (1,) }}|{{ (1, 'it''s') }}|{{ "it's" }}|{{ ["it's", 'say "x"', 'both \' and "', 'new\nline\ttab\\'] }}
{% for x in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in [] %}a{% else %}none{% endfor %}|{% for x in items if x is odd %}{{ x }}{{ loop.length }}{% endfor %}|{% for a, b in pairs %}{{ a }}={{ b }} {% endfor %}
{% for k, v in map.items() %}{{ k }}:{{ v }};{% endfor %}|{% for k in map %}{{ k }}{% endfor %}|{{ map.get('zz', 5) }}|{{ map.keys() | list }}|{{ map['a'] }}|{{ map.b }}|{{ map.zz }}
{% for x in items %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% set x = 1 %}{% for i in items %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}|{% set ns = namespace(x=1) %}{% for i in items %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set t %}block {{ a }}{% endset %}{{ t }}|{% set u | upper %}abc{% endset %}{{ u }}|{% with q = 5, r = 6 %}{{ q }}{{ r }}{% endwith %}{{ q }}
{% macro m(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }},{{ varargs }},{{ kwargs }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=4, a=0) }}{{ m(1, 2, 3, 4, z=5) }}{{ m() }}
{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}bold{{ items|length }}{% endcall %}|{% macro each(l) %}{% for i in l %}{{ caller(i, 2) }}{% endfor %}{% endmacro %}{% call(x, y) each(items) %}{{ x * y }},{% endcall %}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% for n in tree recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{{ loop.depth }}{% endfor %}
{% filter upper %}abc {{ 1 }}{% endfilter %}|{% filter trim | replace('a', 'b') %} aXa {% endfilter %}|{% raw %}{{ not }} {% x %}{% endraw %}|{# comment {{ x }} #}after
{{ '  x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ ' a b '.strip() }}|{{ 'xxa'.lstrip('x') }}|{{ 'a\n\n'.rstrip('\n') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b c '.split() }}|{{ 'a b c'.split(' ', 1) }}|{{ 'a.b.c'.rsplit('.', 1) }}|{{ 'a b  c d'.split(none, 2) }}
{{ 'hello'.startswith('he') }}|{{ 'hello'.endswith(('lo', 'x')) }}|{{ 'hello'.replace('l', 'L') }}|{{ 'hello'.replace('l', 'L', 1) }}|{{ 'abc'.replace('', '-') }}|{{ 'hello'.find('l') }}|{{ 'héllo'.find('l') }}|{{ 'x'.find('q') }}|{{ 'banana'.count('an') }}
{{ 'hello world'.title() }}|{{ 'HeLLo'.lower() }}|{{ 'hello'.upper() }}|{{ 'hELLO'.capitalize() }}|{{ '12'.isdigit() }}|{{ 'ab'.isalpha() }}|{{ 'a\nb\r\nc'.splitlines() }}|{{ '-'.join(['a', 'b']) }}|{{ 'prefix'.removeprefix('pre') }}|{{ 'a.txt'.removesuffix('.txt') }}
{{ '%s is %d, %5.2f|%-4s|%03d%%' % ('x', 3, 2.5, 'ab', 7) }}|{{ '%s' % 'one' }}|{{ '{} and {}'.format('a', 2) }}|{{ '{0}{1}{0}'.format('a', 'b') }}|{{ '%s-%s'|format('a', 1) }}
{{ items|join(', ') }}|{{ dicts|join('/', attribute='n') }}|{{ items|first }}|{{ items|last }}|{{ items|length }}|{{ items|reverse|list }}|{{ 'abc'|reverse }}|{{ items|sum }}|{{ items|min }}|{{ items|max }}|{{ items|list }}|{{ 'abc'|list }}
{{ dicts|map(attribute='n')|list }}|{{ dicts|selectattr('n', 'gt', 1)|map(attribute='n')|join }}|{{ dicts|rejectattr('ok')|list }}|{{ dicts|selectattr('ok')|list }}|{{ items|select('odd')|list }}|{{ items|reject('odd')|list }}|{{ ['a', 'b']|map('upper')|join }}|{{ dicts|selectattr('ok', 'defined')|list|length }}|{{ dicts|map(attribute='zz', default=0)|list }}
{{ [3, 1, 2]|sort }}|{{ ['b', 'A', 'c']|sort }}|{{ dicts|sort(attribute='n', reverse=true)|map(attribute='n')|list }}|{{ map|dictsort }}|{{ [1, 1, 2]|unique|list }}|{{ map|items|list }}|{{ {'b': 1, 'a': 2}|dictsort(by='value') }}
{{ zz|default('d') }}|{{ ''|default('d') }}|{{ ''|default('d', true) }}|{{ none|d('x') }}|{{ zz }}|{{ zz is defined }}|{{ zz is undefined }}|{{ (zz.a if zz else 'no') }}|{{ 'x' if false }}|{{ zz|length }}
{{ '42'|int }}|{{ '4.9'|int }}|{{ 'x'|int }}|{{ 'x'|int(7) }}|{{ 3.9|int }}|{{ '2.5'|float }}|{{ 3|float }}|{{ 2.567|round(2) }}|{{ 2.5|round }}|{{ 2.1|round(0, 'ceil') }}|{{ -3|abs }}|{{ 5|string + '5' }}|{{ 'a b c'|wordcount }}
{{ 'a' is string }}{{ 1 is string }}|{{ 1 is number }}{{ 1.5 is float }}{{ 1 is integer }}{{ true is integer }}{{ true is number }}{{ true is boolean }}|{{ {} is mapping }}{{ [] is mapping }}|{{ [] is sequence }}{{ 'a' is sequence }}{{ 1 is sequence }}|{{ 'a' is iterable }}{{ 5 is iterable }}|{{ none is none }}|{{ m is callable }}|{{ 4 is divisibleby 2 }}|{{ 3 is eq 3 }}|{{ 3 is in [3] }}|{{ 'a' is sameas 'a' }}|{{ false is false }}{{ 0 is false }}{{ true is true }}|{{ 2 is not odd }}|{{ 'ab' is lower }}{{ 'AB' is upper }}
{{ big|tojson }}|{{ big|tojson(indent=2) }}|{{ [1, [], {}]|tojson(indent=4) }}|{{ 'é"\\<&>\n\u2028'|tojson }}|{{ 'é'|tojson(ensure_ascii=true) }}|{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}|{{ [1, 2]|tojson(separators=(',', ':')) }}|{{ 1.0|tojson }}|{{ 1e20|tojson }}|{{ {1: 2, none: 3}|tojson }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ '<a href="x">\'&</a>'|e }}|{{ 'x'|safe }}|{{ 'aaa'|replace('a', 'b', 2) }}|{{ 'hELLO wORLD'|title }}|{{ 'hELLO'|capitalize }}
{{ range(3)|list }}|{{ range(1, 7, 2)|list }}|{{ range(3, 0, -1)|list }}|{{ dict(a=1, b=2) }}|{{ items.index(2) }}|{{ items.count(3) }}|{% for i in range(0) %}x{% endfor %}
{{ [loop is defined, ns is defined] }}|{% for x in items %}{{ loop.cycle('a', 'b') }}{% endfor %}|{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}|{% for x in items %}{% for y in items %}{{ loop.index if loop.first else '' }}{% endfor %}{{ loop.index }}{% endfor %}
{{ "\x41\u00e9\U0001F600\101\q\'\"" }}|{{ 'con' 'cat' }}|{{ 'tab\there' }}|{{ '\\n' }}
{{ {'a': {'b': [10, {'c': 'deep'}]}}['a'].b[1].c }}|{{ pairs.0.1 }}|{{ (1, 2)[1] }}|{{ ({'x': 1}).x }}|{{ 'abc'[0] }}|{{ -items[0] }}|{{ +1 }}|{{ - 2 ** 2 }}|{{ 2 ** 3 ** 2 }}
{{ 1 if true else 2 if false else 3 }}|{{ (1 if false else 2) + 1 }}|{{ 'a' if items else 'b' }}|{{ not true and false }}|{{ not (true and false) }}|{{ 1 ~ 2 * 3 }}|{{ 1 ~ (2 + 3) }}
{{ messages[0]['content'] | trim + '!' }}|{{ (messages[0].content | upper) ~ messages|length }}|{{ messages[-1]['role'] != 'user' }}|{{ messages | map(attribute='role') | join(',') }}|{{ messages|selectattr('role', 'equalto', 'user')|list|length }}|{{ messages[0].missing is defined }}|{{ (messages[0].missing.deeper is defined) if messages[0].missing else 'safe' }}
{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}|{% if 0 %}a{% elif 2 %}b{% else %}c{% endif %}|{% if 0 %}a{% elif '' %}b{% else %}c{% endif %}|{% if a is defined and a %}x{% endif %}
{% generation %}inside {{ items[0] }}{% endgeneration %}|{{ strftime_now('%Y-%m-%d %H:%M %B') }}|{% for x in 'añb' %}[{{ x }}]{% endfor %}
{{ [1, 2] == [1, 2] }}|{{ {'a': 1} == {'a': 1} }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}|{{ true == 1 }}|{{ none == none }}|{{ 'é' > 'z' }}|{{ zz == none }}|{{ zz == yy }}
{{ a.b.c }}
{{ zz + 'x' }}
{{ 'x' + 1 }}
{{ 1 / 0 }}
{{ undefined_function() }}
{{ 5() }}
{{ raise_exception('no ' ~ 'way') }}
{{ [1, 'a']|sort }}
{{ 'a'|nosuchfilter }}
{{ 1 is nosuchtest }}
{% for x in 5 %}{% endfor %}
{% set q.x = 1 %}
{{ range(9999999) | length }}
{{ items.append(5) }}
{{ messages.0.content.pop() }}
""".strip("\n").split("\n")

# White space around tags; \n stands for a line end.
SPACED = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n", "  {% if true %}x{% endif %}  \n  y", "a {{ 1 }}\n{{ 2 -}}\n  b {{- 3 }}",
    "a\n\t{%+ if true %}x{%+ endif %}\n", "{% if true +%}\nx{% endif %}\n", "a  {# c #}\n  b\n  {#- c -#}\n d", "{% set x = 1 %}\n\n{{ x }}\n\n", "x{% raw %} \n {{ a }} {% endraw %}\ny", "x {%- raw -%} \n a \n {%- endraw -%} y",
    "line\r\nnext\r{% if true %}\r\nz\r\n{% endif %}\r\n", "{%- for x in items %}\n  {{ x }}\n{%- endfor %}\n", "  {{ 1 }}  \n  {% set y = 2 %}  \n  {{ y }}", "a\n    {% if true %}{% if true %}\n    b{% endif %}\n    {% endif %}\n",
    "{{ {'a': {'b': 1}}['a'] }}", "{{ '}}' }}{{ \"%}\" }}", "{{ 'a' }}\n", "\n{{ 'a' }}\n\n", "  \n {%- if true %} b {% endif -%} \n  c", "{% if true %}\n{% endif %}\n  {% if true %}\nq\n  {% endif %}", "x\n  {% for i in items %}  {{ i }}\n  {% endfor %}\ny",
    "{{- ' a ' -}}  b", "a{%- if true %}  b{% endif %}", "{%\n  set z\n  =\n  3\n%}{{\nz\n}}", "\u00a0 {%- if true %}x{% endif %}", "\u2003\n  {%- if true %}x{% endif %}",
]

# What cannot be parsed.
BROKEN = ["{% if x %}", "{{ a", "{% for x %}{% endfor %}", "{{ 'abc }}", "{% endif %}", "{% if a %}{% endfor %}", "{{ a b }}", "{{ ( }}", "{# open", "{% raw %} x", "{{ a | }}", "{{ [1, }}", "{% set x %}", "{% macro f( %}{% endmacro %}", "{{ a ! b }}",
          "line 1\nline 2\n{{ 1 + }}", "{% unknown %}", "{% set 1 = 2 %}", "{{ a is }}", "{% break %}", "{{ {1} }}", "{% for a in b %}{% else %}"]

VARIABLES = {
    "items": [1, 2, 3, 4, 5], "pairs": [["p", 1], ["q", 2]], "map": {"b": 2, "a": "x", "c": None}, "dicts": [{"n": 1, "ok": True}, {"n": 2}, {"n": 3, "ok": False}],
    "tree": [{"v": "r", "c": [{"v": "s", "c": []}, {"v": "t", "c": [{"v": "u"}]}]}, {"v": "w"}],
    "big": {"s": "é\"\\\n\t/\u007f", "i": -5, "f": 0.1, "t": True, "n": None, "l": [1, {"x": []}], "": {}}, "messages": [{"role": "user", "content": "  hi "}, {"role": "assistant", "content": "yo"}],
}


def run(name, template, variables):
    case = {"name": name, "template": template, "variables": variables}
    try:
        case["expected"] = environment().from_string(template).render(**variables)
    except Exception as error:  # whatever Python raises, ours must be an error too
        case["error"] = type(error).__name__ + ": " + str(error)
    return case


def main():
    cases = []
    for name, talks in {
        "thinking_tools": [PLAIN, TALK, ENDED, CALLS, PARTS, [{"role": "user", "content": 5}]],
        "alternating": [PLAIN, TALK, ENDED, CALLS, [PLAIN[0], PLAIN[0]], [{"role": "robot", "content": ""}]],
        "headers": [PLAIN, TALK, ENDED, CALLS],
        "observation": [PLAIN, TALK, ENDED, CALLS, PARTS],
        "one_line": [PLAIN, TALK, ENDED, TEXT_CALLS],
        "channels": [PLAIN, TALK, ENDED, CALLS, [{"role": "tool", "content": "x"}]],
    }.items():
        text = (HERE / "templates" / (name + ".jinja")).read_text()
        for i, messages in enumerate(talks):
            for tools in (None, TOOLS):
                variables = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": messages[-1]["role"] != "assistant", "bos_token": "<s>", "eos_token": "</s>"}
                cases.append(run(f"{name}.{i}{'.tools' if tools else ''}", text, variables))
        cases.append(run(name + ".nothink", text, {"messages": TALK, "add_generation_prompt": True, "enable_thinking": False, "thinking": True, "bos_token": "<s>", "eos_token": "</s>"}))
        # The text of the template is in its file.
        for case in cases:
            if case["template"] is text:
                case["template"] = {"file": name + ".jinja"}
    for kind, texts in (("short", SHORT), ("spaced", SPACED), ("broken", BROKEN)):
        for i, text in enumerate(texts):
            cases.append(run(f"{kind}.{i}", text, VARIABLES))
    path = HERE / "templates.cases.json"
    path.write_text(json.dumps({"now": NOW, "cases": cases}, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them errors")


if __name__ == "__main__":
    main()
