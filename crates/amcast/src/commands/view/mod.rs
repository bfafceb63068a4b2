//! `amcast view`: a recorded history as a picture, in the browser.

mod picture;
mod scene;

use super::Failure;
use super::check::usual;
use super::histories::Lines;
use super::sheet::sheet_with;
use amcast_check::{Property, Report, Verdict, check};
use maud::{Markup, html};
use scene::{Choice, Scene};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Draws a recorded history as a page for the browser, complete in one file.
///
/// A line for each process; from left to right what happened, in its order. The history is judged as
/// `amcast check` does it: where a property does not hold, the messages that show it are drawn and what is
/// wrong stands out. Otherwise the first events are, or those that are asked for.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A history (JSON lines), or a directory of them
    path: PathBuf,
    /// Draw what belongs to this message or call, such as c1:42; several with commas
    #[arg(long, value_name = "M", value_delimiter = ',')]
    message: Vec<String>,
    /// Draw nothing before this time, in nanoseconds of the run's clock
    #[arg(long, value_name = "NS", default_value_t = 0)]
    from: u64,
    /// Draw nothing after this time
    #[arg(long, value_name = "NS", default_value_t = u64::MAX, hide_default_value = true)]
    until: u64,
    /// Draw so many events at most
    #[arg(long, value_name = "COUNT", default_value_t = 600)]
    events: usize,
    /// Where to write the page [the history's name with .html, in this directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.events == 0 || args.from > args.until {
        return Err(Failure::Misuse(
            "--events and the time between --from and --until: nothing \
                                    would be drawn"
                .to_string(),
        ));
    }
    let lines = Lines::of(&args.path)?;
    let mut history = lines.history()?;
    // Calls that nothing can judge are drawn like the others.
    let _ = history.leave_out();
    let properties: Vec<Property> = usual(&history);
    let report = check(&history, &properties);
    drop(history);
    let choice = Choice {
        messages: args.message.iter().cloned().collect(),
        between: (args.from, args.until),
        most: args.events,
    };
    let scene = Scene::of(&lines, &choice, &evidence(&report))?;
    if scene.events.is_empty() {
        return Err(Failure::Failed(format!(
            "{}: there is no event of that kind among {}",
            args.path.display(),
            scene.all
        )));
    }
    let out = args.out.clone().unwrap_or_else(|| usual_out(&args.path));
    let title = format!("{}", args.path.display());
    let page = sheet_with(&title, picture::STYLE, &body(&scene, &report));
    fs::write(&out, page).map_err(|e| {
        Failure::Failed(format!(
            "{}: the page cannot be written ({e}); --out FILE puts it elsewhere",
            out.display()
        ))
    })?;
    let full = out.canonicalize().unwrap_or(out);
    println!("file://{}", full.display());
    Ok(())
}

/// In the directory where the command runs, named after the history.
fn usual_out(path: &Path) -> PathBuf {
    let name = path.canonicalize().ok();
    let name = name.as_deref().unwrap_or(path).file_name().unwrap_or_default();
    Path::new(name).with_extension("html")
}

/// Where the history says what is wrong.
fn evidence(report: &Report) -> BTreeSet<(String, u32)> {
    let violated = report.findings.iter().filter_map(|(_, verdict)| match verdict {
        Verdict::Violated(why) => Some(&why.events),
        _ => None,
    });
    violated.flatten().map(|seen| (seen.place.file.clone(), seen.place.line)).collect()
}

fn body(scene: &Scene, report: &Report) -> Markup {
    html! {
        (verdicts(report))
        p {
            (scene.events.len()) " of " (scene.all) " events."
            @if scene.left_out > 0 {
                " " (scene.left_out) " that were chosen are left out: " code { "--events" } ", "
                code { "--from" } ", " code { "--until" } " and " code { "--message" } " choose others."
            }
            " A disc is a cast, a box a delivery, a ring a part that was taken in ordering, a bar a call until \
              its return, a cross a crash, an arrow a start after one, an upright line a view. Columns are \
              events in their order, not equal times. Point at one for what the history says of it."
        }
        (picture::draw(scene))
    }
}

/// What the checker found.
fn verdicts(report: &Report) -> Markup {
    html! {
        ul {
            @for (property, verdict) in &report.findings {
                li {
                    (property.name()) ": "
                    @match verdict {
                        Verdict::Holds => span.yes { "holds" },
                        Verdict::Violated(why) => strong.no { (why.sentence) },
                        Verdict::NotJudged(why) => { "not judged: " (why) }
                        Verdict::Impossible(why) => strong.no { "no run's history: " (why) },
                    }
                }
            }
        }
    }
}
