"""What a page owes its language, and its pictures a text in it.

On a Korean page the theme's words and the menu are Korean. No page leads on to
one in the other language. A notebook's picture is named by the paragraph before
its cell.
"""

import re
from typing import Any

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx

# What Furo and Sphinx say around a page: Sphinx has one language for a site,
# and Furo no words but English ones.
KOREAN = {
    "Auto light/dark, in dark mode": "자동 (지금은 어두운 화면)",
    "Auto light/dark, in light mode": "자동 (지금은 밝은 화면)",
    "Back to top": "맨 위로",
    "Contents": "차례",
    "Dark mode": "어두운 화면",
    "Edit this page": "이 페이지 고치기",
    "Expand": "펼치기",
    "Home": "처음",
    "Index": "색인",
    "Light mode": "밝은 화면",
    "Link to this code": "이 코드의 링크",
    "Link to this heading": "이 제목의 링크",
    "Link to this image": "이 그림의 링크",
    "Link to this table": "이 표의 링크",
    "Made with": "만든 도구:",
    "Menu": "메뉴",
    "Next": "다음",
    "On this page": "이 페이지의 차례",
    "Previous": "이전",
    "Search": "검색",
    "Skip to content": "본문으로 건너뛰기",
    "Toggle Light / Dark / Auto color theme": "화면 바꾸기: 밝게, 어둡게, 자동",
    "Toggle site navigation sidebar": "사이트 메뉴 여닫기",
    "Toggle table of contents sidebar": "차례 여닫기",
    "Version": "버전",
    "View this page": "이 페이지의 원본 보기",
}


def _language(page: str) -> str:
    korean = page.startswith("docs/ko/") or page.endswith(".ko")
    return "ko" if korean else "en"


def _in_korean(html: str) -> str:
    """A page, its labels in Korean: whole texts, and whole attributes."""
    html = re.sub(
        r'([">]\s*)([A-Z][^<>"]*?)(?=\s*[<"])',
        lambda found: found[1] + KOREAN.get(found[2], found[2]),
        html,
    )
    html = re.sub(
        '"Toggle navigation of ([^"]*)"', r'"하위 메뉴 여닫기: \1"', html
    )
    return html.replace("Copyright &#169;", "저작권 &#169;")


def _korean_menu(menu: str, english: str) -> str:
    """The menu's Korean part, and a link to the English pages."""
    tree = BeautifulSoup(menu, "html.parser")
    for caption in tree.select("p.caption"):
        if not re.search("[가-힣]", caption.get_text()):
            caption.find_next_sibling("ul").decompose()
            caption.decompose()
    link = f'<a class="reference internal" href="{english}">영어 문서</a>'
    return f'{tree}<ul><li class="toctree-l1">{link}</li></ul>'


def _name_pictures(app: Sphinx, doctree: nodes.document) -> None:
    before = ""
    for node in doctree.findall():
        if isinstance(node, nodes.paragraph):
            before = node.astext()
        elif isinstance(node, nodes.image) and not node.get("alt"):
            node["alt"] = before


def _say_language(
    app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any
) -> str | None:
    language = context["language"] = _language(page)
    _parent, *neighbors = app.builder.relations.get(page, (None,) * 3)
    for name, other in zip(("prev", "next"), neighbors, strict=True):
        if other and _language(other) != language:
            context[name] = None
    if language == "en":
        return None
    app.add_js_file("korean.js", priority=900)  # on this page alone
    context["in_korean"] = _in_korean
    english = context["pathto"](app.config.root_doc)
    menu = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = _korean_menu(menu, english)
    return "korean.html"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _name_pictures)
    app.connect("html-page-context", _say_language, priority=900)  # after Furo
    return {"parallel_read_safe": True, "parallel_write_safe": True}
