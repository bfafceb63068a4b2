//! A history drawn: a line for each process, from left to right as things happened.

use super::scene::{Scene, SceneEvent, SceneEventKind, time};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeMap;

/// Between two columns, and between two lines, in pixels.
const STEP: (usize, usize) = (22, 40);

/// Above the first line, and to the left of the first column.
const MARGIN: (usize, usize) = (24, 56);

/// Every so many columns the time is written above.
const TICKS: usize = 6;

/// How wide a letter of a name is at the most.
const LETTER: usize = 8;

pub(super) const STYLE: &str = "\
.run{display:flex;border:1px solid #ccd;margin:1rem 0}.run>svg{flex:none}.run div{overflow-x:auto;\
min-width:0}.run svg{max-width:none;\
display:block;font:11px ui-monospace,monospace}.run line{stroke:#9aa3af}.run .name{font-size:12px}\
.run .t{fill:#6b7280;font-size:10px}.m{--c:hsl(var(--h) 65% 40%);fill:var(--c);stroke:var(--c)}\
.m text{stroke:none}.m .in{fill:#fff}.way{fill:none;stroke-width:1.2;opacity:.35}.part{fill:none}\
.call{fill-opacity:.18}.life{fill:#374151;stroke:#374151}.wrong>:first-child{stroke:#d00;stroke-width:3.5}\
.down{stroke-dasharray:2 4}.picked .m{opacity:.12}.picked .m.it{opacity:1}.picked .way.it{opacity:.9}";

/// Pointing at an event highlights all events of its message.
pub(super) const SCRIPT: &str = "\
for(const s of document.querySelectorAll('.run svg')){const all=[...s.querySelectorAll('.m')];\
const pick=m=>{s.classList.toggle('picked',m!==undefined);\
all.forEach(e=>e.classList.toggle('it',e.dataset.m===m))};\
s.addEventListener('mouseover',e=>pick(e.target.closest('.m')?.dataset.m));\
s.addEventListener('mouseleave',()=>pick(undefined))}";

const fn x(column: usize) -> usize {
    MARGIN.0 + column * STEP.0
}

const fn y(row: usize) -> usize {
    MARGIN.1 + row * STEP.1
}

/// The colour of a message: an angle. Those that follow each other differ.
fn hue(message: &str) -> u32 {
    let sum = message.bytes().fold(0_u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    // The golden angle.
    (sum.wrapping_mul(137)) % 360
}

/// The last part of a message's name, which fits into a box; all of it is in the text.
fn short(message: &str) -> &str {
    let number = message.rsplit(':').next().unwrap_or(message);
    &number[number.char_indices().rev().nth(2).map_or(0, |(at, _)| at)..]
}

/// Draws it: names to the left, which stay, and the run to the right, which is moved through.
pub(super) fn draw(scene: &Scene) -> Markup {
    let height = y(scene.processes.len());
    let width = x(scene.columns) + MARGIN.0;
    let names = 24 + LETTER * scene.processes.iter().map(String::len).max().unwrap_or(0);
    html! {
        div.run {
            svg width=(names) height=(height) role="img" aria-label="processes" {
                @for (row, name) in scene.processes.iter().enumerate() {
                    text.name x="12" y=(y(row) + 4) { (name) }
                }
            }
            div {
                svg width=(width) height=(height) role="img" aria-label="the events of the processes" {
                    (ticks(scene))
                    (lines(scene, width))
                    (ways(scene))
                    (calls(scene, width))
                    @for event in &scene.events { (mark(event)) }
                }
            }
        }
        script { (PreEscaped(SCRIPT)) }
    }
}

/// When things happened.
fn ticks(scene: &Scene) -> Markup {
    let mut first: BTreeMap<usize, u64> = BTreeMap::new();
    scene.events.iter().for_each(|e| {
        first.entry(e.column).or_insert(e.t);
    });
    html! {
        @for (column, t) in first.iter().filter(|(column, _)| *column % TICKS == 0) {
            text.t x=(x(*column)) y="14" { (time(*t)) }
            line x1=(x(*column)) y1="18" x2=(x(*column)) y2="24" {}
        }
    }
}

/// A line for each process, broken while it is down.
fn lines(scene: &Scene, width: usize) -> Markup {
    let spans = |row: usize| {
        let mut spans = Vec::new();
        let mut from = 0;
        let mut down = false;
        for event in scene.events.iter().filter(|e| e.row == row) {
            let is_down = match event.kind {
                SceneEventKind::Crash => true,
                SceneEventKind::Recover => false,
                _ => continue,
            };
            spans.push((from, x(event.column), down));
            (from, down) = (x(event.column), is_down);
        }
        spans.push((from, width, down));
        spans
    };
    html! {
        @for row in 0..scene.processes.len() {
            @for (from, to, down) in spans(row) {
                line.down[down] x1=(from) y1=(y(row)) x2=(to) y2=(y(row)) {}
            }
        }
    }
}

/// From where a message was cast to where it was delivered.
fn ways(scene: &Scene) -> Markup {
    let cast = |e: &&SceneEvent| e.kind == SceneEventKind::Cast;
    let casts: BTreeMap<&str, &SceneEvent> =
        scene.events.iter().filter(cast).map(|e| (&*e.message, e)).collect();
    let delivered = scene.events.iter().filter(|e| matches!(e.kind, SceneEventKind::Deliver(_)));
    let ways = delivered.filter_map(|e| Some((casts.get(&*e.message)?, e)));
    html! {
        @for (from, to) in ways.filter(|(from, to)| from.row != to.row) {
            path.m.way data-m=(to.message) style={ "--h:" (hue(&to.message)) }
                d={ "M" (x(from.column)) " " (y(from.row)) " L" (x(to.column)) " " (y(to.row)) } {}
        }
    }
}

/// How long calls took: from the call to its return, or to the end where there is none.
fn calls(scene: &Scene, width: usize) -> Markup {
    let of = |kind| move |e: &&SceneEvent| e.kind == kind;
    let returns: BTreeMap<&str, usize> = scene
        .events
        .iter()
        .filter(of(SceneEventKind::Return))
        .map(|e| (&*e.message, x(e.column)))
        .collect();
    html! {
        @for call in scene.events.iter().filter(of(SceneEventKind::Call)) {
            @let (from, end) = (x(call.column), returns.get(&*call.message).copied());
            rect.m.call data-m=(call.message) style={ "--h:" (hue(&call.message)) }
                x=(from) y=(y(call.row) - 8) height="16" rx="3"
                width=(end.unwrap_or(width).saturating_sub(from)) {}
        }
    }
}

/// An event where it happened, with what the history says of it.
fn mark(event: &SceneEvent) -> Markup {
    let (x, y) = (x(event.column), y(event.row));
    let says = html! { title { (event.says) } };
    let class = match (event.message.is_empty(), event.is_evidence) {
        (true, false) => "life",
        (true, true) => "life wrong",
        (false, false) => "m",
        (false, true) => "m wrong",
    };
    let shape = match event.kind {
        SceneEventKind::Cast => html! {
            circle cx=(x) cy=(y) r="6" {}
            text x=(x) y=(y - 10) text-anchor="middle" { (short(&event.message)) }
        },
        SceneEventKind::Part => html! { circle.part cx=(x) cy=(y) r="4" {} },
        SceneEventKind::Deliver(_) => html! {
            rect x=(x - 10) y=(y - 8) width="20" height="16" rx="2" {}
            text.in x=(x) y=(y + 4) text-anchor="middle" { (short(&event.message)) }
        },
        SceneEventKind::Call => html! { path d={ "M" (x) " " (y - 9) " v18" } {} },
        SceneEventKind::Return => html! {
            path d={ "M" (x) " " (y - 9) " v18" } {}
        },
        SceneEventKind::Crash => html! {
            path d={ "M" (x - 6) " " (y - 6) " l12 12 m0 -12 l-12 12" } stroke-width="2.5" {}
        },
        SceneEventKind::Recover => {
            html! { path d={ "M" (x - 5) " " (y - 7) " l11 7 l-11 7 z" } {} }
        }
        SceneEventKind::View => {
            html! { path d={ "M" (x) " " (y - 12) " v24" } stroke-width="3" {} }
        }
    };
    html! {
        g class=(class) data-m=[(!event.message.is_empty()).then_some(&event.message)]
            style={ "--h:" (hue(&event.message)) } { (shape) (says) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(column: usize, row: usize, kind: SceneEventKind, message: &str) -> SceneEvent {
        let (says, message) = (format!("<{message}>"), message.to_string());
        SceneEvent { t: column as u64, row, column, kind, message, says, is_evidence: column == 1 }
    }

    #[test]
    fn every_event_is_drawn_with_its_words_and_what_is_wrong_stands_out() {
        let events = vec![
            event(0, 1, SceneEventKind::Cast, "c0:1234"),
            event(1, 0, SceneEventKind::Deliver(1), "c0:1234"),
            event(2, 0, SceneEventKind::Crash, ""),
            event(3, 0, SceneEventKind::Recover, ""),
            event(4, 1, SceneEventKind::Call, "c0:5"),
        ];
        let processes = vec!["g0/r0".to_string(), "c0".to_string()];
        let scene =
            Scene { processes, events, columns: 5, left_out: 0, all: 5, ..Scene::default() };
        let page = draw(&scene).into_string();
        assert_eq!(page.matches("<title>").count(), 5, "{page}");
        assert_eq!(page.matches("<path class=\"m way\"").count(), 1, "one way to one delivery");
        assert_eq!(page.matches("class=\"m wrong\"").count(), 1);
        assert_eq!(page.matches("class=\"down\"").count(), 1, "down once");
        assert!(page.contains("&lt;c0:1234&gt;"), "names cannot break the page");
        assert!(page.contains(">234<"), "of a long number its end: {page}");
        // A call without a return lasts to the end.
        assert!(page.contains("width=\"46\""), "{page}");
    }

    #[test]
    fn names_of_any_letters_are_cut_between_them() {
        assert_eq!([short("c1:7"), short("c1:12345"), short("äöüß")], ["7", "345", "öüß"]);
    }
}
