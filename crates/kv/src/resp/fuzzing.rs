//! A way into the parser for `crates/fuzzing`, and for nobody else.

use super::parser::{Parser, ParserStep, RequestBounds};

/// The commands in a stream that comes in pieces of so many bytes: the arguments of each, or none for
/// one that is too large; at last nothing more, where the stream makes no sense.
pub fn requests(
    stream: &[u8],
    piece: usize,
    command_bytes_max: usize,
) -> Vec<Option<Vec<Vec<u8>>>> {
    let (mut parser, mut commands) = (Parser::default(), Vec::new());
    let mut input = Vec::new();
    // Bytes that are still to come and to be dropped.
    let mut skip = 0_usize;
    for piece in stream.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            let now = skip.min(input.len());
            input.drain(..now);
            skip -= now;
            let bounds = RequestBounds::new(command_bytes_max);
            let step = if skip > 0 { ParserStep::More } else { parser.step(&input, bounds) };
            match step {
                ParserStep::More => break,
                ParserStep::Drop(n) => skip = n,
                ParserStep::TooLarge(n) => {
                    skip = n;
                    commands.push(None);
                }
                ParserStep::Command(n) => {
                    let args = parser.args.iter().map(|range| input[range.clone()].to_vec());
                    commands.push(Some(args.collect()));
                    skip = n;
                }
                ParserStep::Error(_) => return commands,
            }
        }
    }
    commands
}
