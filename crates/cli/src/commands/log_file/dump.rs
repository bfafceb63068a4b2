//! `amcast log-file dump`: prints records.

use super::failure;
use super::findings;
use crate::commands::terminal_text::error_text;
use amcast_lab::commands::{Failure, entry};
use amcast_storage::offline::{self, RecordSummary};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Prints records, also those behind damage, which are marked with an exclamation mark.
///
/// Exits with 1 if something is damaged.
#[derive(clap::Args)]
pub(super) struct DumpArgs {
    /// The directory of a process's log, or one segment of it
    #[arg(value_name = "FILE|DIR")]
    pub(super) path: PathBuf,
    /// The first number that is printed
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// The last number that is printed
    #[arg(long, value_name = "NUMBER", default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    /// Print the records as this protocol reads them
    #[arg(long, value_name = "NAME", conflicts_with = "hex")]
    protocol: Option<String>,
    /// Print the records as hexadecimal digits even if they are text
    #[arg(long)]
    hex: bool,
    /// How many bytes of each record are printed, unless a protocol reads it; 0 for all
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    bytes: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// How a record is shown.
type RecordFormat<'a> = Box<dyn Fn(&[u8]) -> String + 'a>;

pub(super) fn run(args: &DumpArgs) -> Result<(), Failure> {
    let show: RecordFormat<'_> = match &args.protocol {
        Some(name) => {
            let entry = entry(name)?;
            Box::new(move |bytes| entry.show(bytes))
        }
        None => Box::new(|bytes| shown(bytes, args)),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut written, mut some) = (Ok(()), false);
    let mut print = |record: RecordSummary<'_>| {
        if written.is_ok() && (args.from..=args.to).contains(&record.number) {
            written = if args.json {
                document(&mut out, &record, &show, some)
            } else {
                line(&mut out, &record, &show)
            };
            some = true;
        }
    };
    let survey = if args.path.is_dir() {
        offline::inspect(&args.path, &mut print).map_err(failure)?
    } else {
        offline::inspect_segment(&args.path, &mut print).map_err(failure)?
    };
    if args.json {
        let begin = if some { "" } else { "{\"records\":[" };
        let ended = writeln!(out, "{begin}],\"log\":{}}}", findings::document(&survey));
        written = written.and(ended);
    }
    written.and(out.flush()).map_err(Failure::failed)?;
    if survey.is_sound() {
        return Ok(());
    }
    if let Some(damage) = &survey.damage {
        eprintln!("amcast: {}", error_text(&damage.to_string()));
    }
    if let Some(e) = &survey.state {
        eprintln!("amcast: {}", error_text(&e.to_string()));
    }
    Err(Failure::Said)
}

fn line(
    out: &mut impl Write,
    record: &RecordSummary<'_>,
    show: &RecordFormat<'_>,
) -> io::Result<()> {
    let RecordSummary { number, life, bytes, beyond, .. } = record;
    let mark = if *beyond { "!" } else { "" };
    writeln!(out, "{mark}{number} life {life} {} bytes: {}", bytes.len(), show(bytes))
}

/// A record within the list of a document that is written as it is read.
fn document(
    out: &mut impl Write,
    record: &RecordSummary<'_>,
    show: &RecordFormat<'_>,
    more: bool,
) -> io::Result<()> {
    let RecordSummary { number, life, path, offset, bytes, beyond } = record;
    let value = json!({
        "number": number,
        "life": life,
        "file": path.display().to_string(),
        "offset": offset,
        "bytes": bytes.len(),
        "beyond": beyond,
        "record": show(bytes),
    });
    write!(out, "{}{value}", if more { "," } else { "{\"records\":[" })
}

/// The beginning of a record: as text if it is that, or as digits.
fn shown(bytes: &[u8], args: &DumpArgs) -> String {
    let most = if args.bytes == 0 { bytes.len() } else { args.bytes };
    let (part, dots) = match bytes.get(..most) {
        Some(part) if part.len() < bytes.len() => (part, ".."),
        _ => (bytes, ""),
    };
    let text = |part: &[u8]| {
        let printable = |&b: &u8| b == b' ' || b.is_ascii_graphic();
        !args.hex && !part.is_empty() && part.iter().all(printable)
    };
    if text(part) {
        return format!("{:?}{dots}", String::from_utf8_lossy(part));
    }
    let digits: String = part.iter().map(|b| format!("{b:02x}")).collect();
    digits + dots
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct DumpCommand {
        #[command(flatten)]
        args: DumpArgs,
    }

    #[test]
    fn a_record_is_shown_as_text_or_as_digits_up_to_a_limit() {
        let args = |words: &[&str]| DumpCommand::parse_from([&["dump"], words].concat()).args;
        assert_eq!(shown(b"hello world", &args(&["x"])), "\"hello world\"");
        assert_eq!(shown(b"hello world", &args(&["x", "--bytes", "5"])), "\"hello\"..");
        assert_eq!(shown(b"hello", &args(&["x", "--hex", "--bytes", "2"])), "6865..");
        assert_eq!(shown(&[0, 255], &args(&["x"])), "00ff");
        assert_eq!(shown(&[7; 100], &args(&["x", "--bytes", "0"])).len(), 200);
        assert_eq!(shown(b"", &args(&["x"])), "");
    }
}
