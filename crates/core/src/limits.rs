//! Every limit of the program, in one place, with the relations between them asserted.

/// Groups in a cluster: destinations are a set in one word.
pub const GROUPS_MAX: usize = 64;

/// Replicas in a group. Protocols may have lower limits of their own.
pub const REPLICAS_MAX: usize = 32;

/// Replicas in a group over shared memory: each has regions for each other one.
pub const MEMORY_REPLICAS_MAX: usize = 9;

/// Client processes of a cluster, services' gateways included.
pub const CLIENTS_MAX: usize = 256;

/// Lives of a process that has no shared memory: their numbers are below. A gateway's sessions have as
/// many bits for it.
pub const LIVES_MAX: u32 = 1 << 24;

/// Bits of a message's number that count within one incarnation of its sender: those above them are the incarnation.
pub const NUMBER_BITS: u32 = 32;

/// Bytes of payload in one message.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Bytes of one message of a protocol on a stream, at most: beyond its payloads it has room for what a protocol packs
/// together.
pub const FRAME_BYTES_MAX: usize = 4 * PAYLOAD_BYTES_MAX;

/// Bytes of one command of a service that is larger than a message and is ordered in parts.
pub const COMMAND_BYTES_MAX: usize = 64 << 20;

/// Bytes of one answer to a command.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;

const _: () = assert!(PAYLOAD_BYTES_MAX <= COMMAND_BYTES_MAX);
const _: () = assert!(GROUPS_MAX <= u64::BITS as usize);
// A view's members in a note are a bit each.
const _: () = assert!(REPLICAS_MAX <= u32::BITS as usize);
const _: () = assert!(GROUPS_MAX * REPLICAS_MAX + CLIENTS_MAX <= u16::MAX as usize);
