//! `amcast view`: a recorded history as a picture, in the browser.

mod picture;
mod scene;

use super::check::usual;
use super::histories::HistoryInput;
use amcast_check::{CheckReport, Property, PropertyVerdict, check};
use amcast_lab::commands::Failure;
use amcast_lab::commands::sheet::{GENERATOR, sheet_with};
use maud::{Markup, html};
use scene::{EventFilter, Scene};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The permissions of a page.
const FILE_MODE: u32 = 0o600;

/// Within so many bytes a page says what it is.
const PAGE_HEAD_BYTES: u64 = 1000;

/// Draws a recorded history as a page for the browser, complete in one file.
///
/// A line for each process; its events from left to right, in their order. The history is judged as
/// `amcast check` does it: where a property does not hold, the messages that show it are drawn and
/// the wrong events are highlighted. Otherwise the first events are drawn, or those that are asked
/// for. Only you may read the page, as the history: both have clients' data in them.
#[derive(clap::Args)]
pub(super) struct ViewArgs {
    /// A history (JSON lines), or a directory of them
    path: PathBuf,
    /// Draw what belongs to this message, such as g0/r1:42, or to this call, such as c32.0.3:7; several
    /// with commas
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
    /// Where to write the page, in place of an earlier one [the history's name with .html, in this
    /// directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the page also in place of a file that is none
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &ViewArgs) -> Result<(), Failure> {
    if args.events == 0 || args.from > args.until {
        return Err(Failure::Misuse(
            "--events and the time between --from and --until: nothing \
                                    would be drawn"
                .to_string(),
        ));
    }
    let lines = HistoryInput::of(&args.path)?;
    let mut history = lines.history()?;
    // Calls that nothing can judge are drawn like the others.
    let _ = history.leave_out();
    let properties: Vec<Property> = usual(&history);
    let report = check(&history, &properties);
    drop(history);
    let choice = EventFilter {
        messages: args.message.iter().cloned().collect(),
        between: (args.from, args.until),
        most: args.events,
    };
    let scene = Scene::of(&lines, &choice, &evidence(&report))?;
    if scene.events.is_empty() {
        let path = args.path.display();
        let names: Vec<_> = scene.first.into_iter().flatten().collect();
        let named = match &names[..] {
            [] => String::new(),
            names => format!("; calls and messages are named as in it: {}", names.join(", ")),
        };
        let why = format!("{path}: there is no event of that kind among {}{named}", scene.all);
        return Err(Failure::Failed(why));
    }
    let out = args.out.clone().unwrap_or_else(|| usual_out(&args.path));
    if !args.force && !is_replaceable(&out) {
        return Err(Failure::Misuse(format!(
            "{}: is there, and is no page of amcast; --out FILE puts the page elsewhere, --force in its \
             place",
            out.display()
        )));
    }
    let title = format!("{}", args.path.display());
    let page = sheet_with(&title, picture::STYLE, &body(&scene, &report));
    write_private(&out, page.as_bytes()).map_err(|e| {
        Failure::Failed(format!(
            "{}: the page cannot be written ({e}); --out FILE puts it elsewhere",
            out.display()
        ))
    })?;
    let full = out.canonicalize().unwrap_or(out);
    println!("file://{}", full.display());
    Ok(())
}

/// Writes a file that only its owner may read, as the histories are: the page has clients' data in it. One that was there
/// stays as it was until the new one is complete, and if that cannot be written or be kept from others.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        // A pipe or a device has no page to keep.
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    // Where a link points to a file, that is replaced and not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let new = path.with_file_name(new_name());
    // A process of the same number may have been killed.
    _ = fs::remove_file(&new);
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
    let written = fill_private(file, bytes).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        _ = fs::remove_file(&new);
    }
    written
}

/// The name of a page that is being written.
fn new_name() -> String {
    format!(".amcast-page-{}.new", std::process::id())
}

/// Writes a new file, if only its owner may read it.
fn fill_private(mut file: fs::File, bytes: &[u8]) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("the file system lets others read it"));
    }
    file.write_all(bytes)
}

/// Whether a page may be written there: nothing is there, or another page.
fn is_replaceable(out: &Path) -> bool {
    let mut begins = Vec::new();
    match fs::File::open(out) {
        Ok(file) => {
            let read = file.take(PAGE_HEAD_BYTES).read_to_end(&mut begins);
            read.is_ok() && String::from_utf8_lossy(&begins).contains(GENERATOR)
        }
        // The writer reports other errors there.
        Err(_) => true,
    }
}

/// In the directory where the command runs, named after the history.
fn usual_out(path: &Path) -> PathBuf {
    let name = path.canonicalize().ok();
    let name = name.as_deref().unwrap_or(path).file_name().unwrap_or_default();
    Path::new(name).with_extension("html")
}

/// Where the history says what is wrong.
fn evidence(report: &CheckReport) -> BTreeSet<(String, u32)> {
    let violated = report.findings.iter().filter_map(|(_, verdict)| match verdict {
        PropertyVerdict::Violated(why) => Some(&why.events),
        _ => None,
    });
    violated.flatten().map(|seen| (seen.place.file.clone(), seen.place.line)).collect()
}

fn body(scene: &Scene, report: &CheckReport) -> Markup {
    html! {
        (verdicts(report))
        p {
            (scene.events.len()) " of " (scene.all) " events."
            @if scene.left_out > 0 {
                " " (scene.left_out) " that were chosen are not drawn:  " code { "--events" } ", "
                code { "--from" } ", " code { "--until" } " and " code { "--message" } " choose others."
            }
            " A disc is a cast, a box a delivery, a ring a part that was taken in ordering, a bar a call until \
              its return, a cross a crash, an arrow a start after one, an upright line a view. Columns are \
              events in their order, not equal times. Point at one for what the history says of it."
        }
        (picture::draw(scene))
    }
}

/// The checker's verdicts.
fn verdicts(report: &CheckReport) -> Markup {
    html! {
        ul {
            @for (property, verdict) in &report.findings {
                li {
                    (property.name()) ": "
                    @match verdict {
                        PropertyVerdict::Holds => span.yes { "holds" },
                        PropertyVerdict::Violated(why) => strong.no { (why.sentence) },
                        PropertyVerdict::NotJudged(why) => { "not judged: " (why) }
                        PropertyVerdict::Impossible(why) => strong.no { "no run's history: " (why) },
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_reads_a_page_also_in_place_of_one_that_others_read() {
        let _limit = amcast_test_policy::time_limit();
        let path = std::env::temp_dir().join(format!("amcast-page-{}.html", std::process::id()));
        fs::write(&path, "a page that was there before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        for text in ["a page", "again"] {
            write_private(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, FILE_MODE);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_page_is_replaced_where_a_link_points_and_stays_as_it_was_if_the_new_one_cannot_be_made() {
        let _limit = amcast_test_policy::time_limit();
        let dir = std::env::temp_dir().join(format!("amcast-pages-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (page, link) = (dir.join("page.html"), dir.join("link.html"));
        fs::write(&page, "before").unwrap();
        fs::set_permissions(&page, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("page.html", &link).unwrap();
        let mode = || fs::metadata(&page).unwrap().permissions().mode() & 0o777;
        // Something is in the way of the new page.
        let new = dir.join(new_name());
        fs::create_dir(&new).unwrap();
        write_private(&link, b"after").unwrap_err();
        assert_eq!((fs::read_to_string(&page).unwrap().as_str(), mode()), ("before", 0o644));
        fs::remove_dir(&new).unwrap();
        // A page that a killed process did not complete is not.
        fs::write(&new, "aft").unwrap();
        write_private(&link, b"after").unwrap();
        assert_eq!((fs::read_to_string(&page).unwrap().as_str(), mode()), ("after", FILE_MODE));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing else is left");
        write_private(Path::new("/dev/null"), b"after").unwrap();
        assert!(write_private(&dir, b"after").is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
