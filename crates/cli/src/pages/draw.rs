//! What pictures have in common: numbers, texts, hatching, keys.

use maud::{Markup, PreEscaped, html};

use super::colour;
use super::text::{fitted, width_of};

/// Text of a picture, in pixels at its own width.
pub(super) const TEXT: f64 = 12.0;
/// What matters less.
pub(super) const SMALL: f64 = 10.5;

/// A coordinate with a digit after the point, where it is not 0.
pub(super) fn px(n: f64) -> String {
    let text = format!("{n:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// A picture, and what it shows in words.
pub(super) struct Picture {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) title: String,
    pub(super) description: String,
    pub(super) body: Markup,
}

impl Picture {
    /// An `svg` of its own, that needs nothing else.
    pub(super) fn file(&self) -> String {
        let style = format!("{}{CSS}", colour::css(":root"));
        format!("{}\n", self.svg(None, &html! { style { (PreEscaped(style)) } }).into_string())
    }

    /// A part of a page that has the style sheet [`inline_style`].
    #[cfg(feature = "serve")]
    pub(super) fn inline(&self) -> Markup {
        self.svg(Some("picture"), &html! {})
    }

    fn svg(&self, class: Option<&str>, style: &Markup) -> Markup {
        let size = format!("0 0 {} {}", px(self.width), px(self.height));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" class=[class] width=(px(self.width)) height=(px(self.height)) viewBox=(size)
                role="img" aria-labelledby="title desc"
            {
                (PreEscaped(super::file::MARK))
                title id="title" { (self.title) }
                desc id="desc" { (self.description) }
                (style)
                defs { (hatches()) }
                rect class="ground" width="100%" height="100%" {}
                (self.body)
            }
        }
    }
}

/// The styles of pictures within a page, which has colours, and classes of the same names.
#[cfg(feature = "serve")]
pub(super) fn inline_style() -> String {
    CSS.split_inclusive('}').map(|rule| format!("svg.picture {rule}")).collect()
}

/// Styles of a picture.
const CSS: &str = "text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;\
fill:var(--ink);unicode-bidi:isolate;direction:ltr}\
.small{font-size:10.5px;fill:var(--faint)}\
.title{font-size:16px;font-weight:600}\
.end{text-anchor:end}.middle{text-anchor:middle}\
.number{font-variant-numeric:tabular-nums}\
.ground{fill:var(--ground)}\
.hollow{fill:none;stroke:var(--faint);stroke-width:1}\
.dashed{fill:none;stroke:var(--faint);stroke-width:1;stroke-dasharray:3 2}\
.frame{fill:none;stroke:var(--rule);stroke-width:1}\
.rule{stroke:var(--rule);stroke-width:1;fill:none}\
.ink{stroke:var(--ink)}\
.borrowed{opacity:.28}.copied{opacity:.7}.encoded{opacity:.55}\
.thread{opacity:.7}\
.hatch{stroke:var(--ground);stroke-width:1}\
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c5{fill:var(--c5)}.c6{fill:var(--c6)}\
.s0{stop-color:var(--c0)}.s1{stop-color:var(--c1)}.s2{stop-color:var(--c2)}.s3{stop-color:var(--c3)}.s4{stop-color:var(--c4)}.s5{stop-color:var(--c5)}.s6{stop-color:var(--c6)}";

/// Hatching in the colour of the ground, over any colour.
fn hatches() -> Markup {
    let line = |id: &str, step: f64, turn: &str| {
        html! {
            pattern id=(id) width=(px(step)) height=(px(step)) patternUnits="userSpaceOnUse" patternTransform=(turn) {
                line class="hatch" x1="0" y1="0" x2="0" y2=(px(step)) {}
            }
        }
    };
    html! {
        (line("hatch", 6.0, "rotate(45)"))
        (line("dense", 3.0, "rotate(-45)"))
    }
}

/// A text at a place, cut to `width`.
pub(super) fn text(x: f64, y: f64, class: &str, width: f64, size: f64, what: &str) -> Markup {
    let cut = fitted(what, width, size);
    html! { text x=(px(x)) y=(px(y)) class=(class) { (cut) } }
}

/// One of the marks that a key explains: what is drawn, in a box of 18 by 11, and what it means.
pub(super) struct Mark {
    pub(super) drawn: Markup,
    pub(super) means: String,
}

/// The marks in lines of at most `width`, from `(x, y)` on. Returns where the next line begins.
pub(super) fn key(marks: &[Mark], x: f64, y: f64, width: f64) -> (Markup, f64) {
    let (mut at, mut line) = (x, y);
    let mut drawn = vec![];
    for mark in marks {
        let means = fitted(&mark.means, width - 24.0, SMALL);
        let wide = 24.0 + width_of(&means, SMALL) + 16.0;
        if at > x && at + wide - 16.0 > x + width {
            (at, line) = (x, line + 18.0);
        }
        drawn.push(html! {
            g transform=(format!("translate({} {})", px(at), px(line))) { (mark.drawn) }
            text x=(px(at + 24.0)) y=(px(line + 9.5)) class="small" { (means) }
        });
        at += wide;
    }
    (html! { @for one in drawn { (one) } }, line + 18.0)
}

/// A box of a key.
pub(super) fn swatch(class: &str) -> Markup {
    html! { rect class=(class) width="18" height="11" {} }
}

/// The same, hatched.
pub(super) fn hatched(class: &str, pattern: &str) -> Markup {
    html! {
        rect class=(class) width="18" height="11" {}
        rect fill=(format!("url(#{pattern})")) width="18" height="11" {}
    }
}

/// A round number of bytes that is at most `bytes`: 1, 2 or 5 times a power of ten of a unit.
pub(super) fn round_bytes(bytes: f64) -> u64 {
    let mut unit = 1.0;
    while bytes / unit >= 1000.0 && unit < 1e15 {
        unit *= 1024.0;
    }
    let steps = [500.0, 200.0, 100.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0];
    let step = steps.into_iter().find(|step| step * unit <= bytes).unwrap_or(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive whole number")]
    let round = (step * unit) as u64;
    round
}
