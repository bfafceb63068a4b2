//! Pages that are complete in one file: what they all look like.

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24}table{border-collapse:collapse;margin:1rem 0}th,td{border:1px solid #ccd;padding:.3rem .6rem;\
text-align:left;vertical-align:top}th{background:#f2f4f8}caption{text-align:left;font-weight:600;\
padding:.3rem 0}.yes{color:#136c2e}.no{color:#a40e26}svg{max-width:100%;height:auto}code{background:#f2f4f8;\
padding:0 .2rem;word-break:break-all}figcaption{color:#555}.gap{background:#ffe9b8}.alone{background:#ffd0d0}\
.late{background:#d5e5ff}.order td{font:12px monospace;padding:.1rem .3rem}";

/// The mark of the generator in each page.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"amcast\">";

/// A page with a heading.
pub fn sheet(title: &str, body: &Markup) -> String {
    sheet_with(title, "", body)
}

/// The same, with more styles.
pub fn sheet_with(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                (PreEscaped(GENERATOR))
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { h1 { (title) } (body) }
        }
    };
    page.into_string()
}
