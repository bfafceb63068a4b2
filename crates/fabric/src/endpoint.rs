//! Unsafe code: an endpoint of libfabric and the two buffers that belong to it.
//!
//! # Revocation
//! [`FabricEndpoint::close`] closes the registration of the landing buffer, and then the endpoint. Closing the
//! registration alone is not enough: of a large write that is under way bytes continue to arrive with provider `tcp`, and
//! its writer even hears that it succeeded. Bytes may land until `close` returns, and none does afterwards. The endpoint has
//! a domain of its own, so its key is of no use on another endpoint of this process.
//!
//! Nobody but the peer writes into the landing buffer, and it may do so at any time. The buffers are atomic words, so a
//! peer's write makes at worst a wrong value, never undefined behaviour.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// The longest name of an endpoint, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The version of addresses, notices and rings. Endpoints of different versions do not meet.
pub const ADDRESS_VERSION: u8 = 2;

/// The beginning of an address, before its version.
const ADDRESS_HEAD: [u8; 7] = *b"amcrdma";

/// Families of socket addresses, as Linux numbers them.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Which provider of libfabric carries writes, and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricSettings {
    /// The provider as libfabric names it. `tcp` and `verbs` stand for `tcp;ofi_rxm` and `verbs;ofi_rxm`, which give them
    /// endpoints without connections.
    pub provider: String,
    /// The local address whose network is used; the provider chooses one if there is none.
    pub bind: Option<IpAddr>,
}

impl Default for FabricSettings {
    /// Provider `tcp`, which every host with libfabric has.
    fn default() -> Self {
        Self { provider: "tcp".to_string(), bind: None }
    }
}

impl FabricSettings {
    /// The provider's full name.
    fn provider_in_full(&self) -> String {
        match &*self.provider {
            "tcp" | "verbs" => format!("{};ofi_rxm", self.provider),
            other => other.to_string(),
        }
    }
}

/// The buffers of libfabric's utility provider for messages, by its variables: of 512 bytes, and 128 of them. Notices are
/// the only messages.
const SMALL_BUFFERS: [(&str, &str); 3] = [
    ("FI_OFI_RXM_BUFFER_SIZE", "512"),
    ("FI_OFI_RXM_EAGER_LIMIT", "512"),
    ("FI_OFI_RXM_MSG_RX_SIZE", "128"),
];

/// Prepares a program for libfabric, at its beginning, before it has other threads and handlers of signals.
///
/// It has libfabric take small buffers for messages, unless the environment says otherwise: by default libfabric 1.17 takes 80 MB for
/// an endpoint of provider `tcp`. That changes the environment, which libfabric reads with its first endpoint, and it
/// does not once there is a second thread. And it gives back the signals that `libinfinipath` takes where the system's libfabric loads
/// it: with its handlers a program that is asked to end by SIGTERM fails, and writes a report of a crash. Gives how many
/// signals these were.
#[expect(
    clippy::disallowed_methods,
    reason = "libfabric takes it from nowhere else, and no thread reads it yet"
)]
pub fn prepare_process() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if tasks.is_ok_and(|tasks| tasks == 1) && !has_buffer_sizes() {
        for (name, value) in SMALL_BUFFERS {
            // SAFETY: this is the only thread of the process, so nobody reads or writes the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    }
    // SAFETY: the function takes any state of handlers, and changes none that another library has set.
    let released = unsafe { amcast_fabric_release_signals() };
    usize::try_from(released).unwrap_or(0)
}

/// Whether the environment says how large libfabric's buffers for messages are.
pub fn has_buffer_sizes() -> bool {
    SMALL_BUFFERS.iter().any(|(name, _)| std::env::var_os(name).is_some())
}

/// A call of libfabric that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FabricError {
    /// An endpoint cannot be opened: the provider, the call that failed, and libfabric's words.
    Open {
        /// The provider.
        provider: String,
        /// The local address that was asked for.
        bind: Option<IpAddr>,
        /// The call.
        step: String,
        /// The error.
        says: String,
    },
    /// The provider or the address has a form that libfabric does not take.
    Name(String),
    /// No key could be drawn that nobody can guess.
    NoKey(String),
    /// The address of a peer is of another kind than this endpoint's own: the two use different providers or networks.
    Peer,
    /// Bytes are no address of an endpoint.
    NoAddress,
    /// The address of a peer has this version, and not [`ADDRESS_VERSION`].
    Version(u8),
    /// The landing buffer of a peer is not as large as this endpoint's.
    Ring {
        /// Bytes here.
        own: u64,
        /// Bytes there.
        peer: u64,
    },
    /// An operation failed, in libfabric's words.
    Operation(String),
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { provider, bind, step, says } => {
                write!(f, "libfabric opens no endpoint of provider {provider:?}")?;
                if let Some(bind) = bind {
                    write!(f, " at {bind}")?;
                }
                write!(
                    f,
                    ": {step}: {says}; `fi_info -p '{provider}'` says whether this host has that provider, and at which \
                     addresses"
                )
            }
            Self::Name(name) => write!(f, "{name:?} is no name for libfabric"),
            Self::NoKey(why) => write!(f, "no key for remote writes can be drawn: {why}"),
            Self::Peer => f.write_str(
                "the other node's endpoint is of another provider or network; give all nodes the same settings",
            ),
            Self::NoAddress => f.write_str(
                "the other node's address is none of an endpoint; give both nodes the same version of this program",
            ),
            Self::Version(peer) => write!(
                f,
                "the other node's remote memory access has version {peer}, and this one's version {ADDRESS_VERSION}; give \
                 both nodes the same version of this program"
            ),
            Self::Ring { own, peer } => write!(
                f,
                "the other node's landing buffer has {peer} bytes, and this one's {own}; give both nodes the same \
                 version of this program and the same nodes in the cluster's file"
            ),
            Self::Operation(says) => write!(f, "libfabric: {says}"),
        }
    }
}

impl core::error::Error for FabricError {}

/// The name and key of an endpoint, which its writer has to know. Any process that knows them can write there.
#[derive(Clone, PartialEq, Eq)]
pub struct FabricAddress {
    name: Vec<u8>,
    base: u64,
    key: u64,
    bytes: u64,
    /// The word of notices to it.
    token: u64,
}

impl fmt::Debug for FabricAddress {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FabricAddress({self}, {} bytes)", self.bytes)
    }
}

impl fmt::Display for FabricAddress {
    /// Where it is: a socket address, if the provider has such.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(socket) => socket.fmt(f),
            None => self.name.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl FabricAddress {
    /// Its written form: `amcrdma` and the version; base, key, length and the word of notices, of 8 bytes each,
    /// little-endian; the name.
    pub fn encode(&self) -> Vec<u8> {
        let words = [self.base, self.key, self.bytes, self.token].map(u64::to_le_bytes);
        [&ADDRESS_HEAD[..], &[ADDRESS_VERSION], words.as_flattened(), &self.name].concat()
    }

    /// Reads the written form.
    ///
    /// # Errors
    /// When it is none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FabricError> {
        let rest = bytes.strip_prefix(&ADDRESS_HEAD).ok_or(FabricError::NoAddress)?;
        let (version, rest) = rest.split_first().ok_or(FabricError::NoAddress)?;
        if *version != ADDRESS_VERSION {
            return Err(FabricError::Version(*version));
        }
        let (words, name) = rest.split_first_chunk::<32>().ok_or(FabricError::NoAddress)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(FabricError::NoAddress);
        }
        let (words, _) = words.as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        Ok(Self {
            name: name.to_vec(),
            base: word(0),
            key: word(1),
            bytes: word(2),
            token: word(3),
        })
    }

    /// How many bytes may be written there.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is, with providers whose names are socket addresses.
    pub fn socket(&self) -> Option<SocketAddr> {
        let family = u16::from_ne_bytes(*self.name.first_chunk()?);
        let port = u16::from_be_bytes(*self.name.get(2..)?.first_chunk()?);
        match (family, self.name.len()) {
            (AF_INET, 16) => {
                let ip: [u8; 4] = *self.name[4..].first_chunk()?;
                Some(SocketAddr::from((ip, port)))
            }
            (AF_INET6, 28) => {
                let ip: [u8; 16] = *self.name[8..].first_chunk()?;
                Some(SocketAddr::from((ip, port)))
            }
            _ => None,
        }
    }
}

/// A write from the staging buffer into the peer's landing buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FabricWrite {
    /// The first byte in the staging buffer.
    pub from: usize,
    /// The first byte in the peer's landing buffer.
    pub to: usize,
    /// How many bytes.
    pub bytes: usize,
    /// Comes back with the event that completes the write. Below 2^62.
    pub id: u64,
}

/// An event of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FabricEvent {
    /// The write of this number is in the peer's memory.
    Written(u64),
    /// A notice of the peer.
    Notice(u64),
    /// A message of somebody who was not told this endpoint's address by this process. It was dropped.
    Foreign,
    /// The write of this number failed, and a part of it may have landed; or another operation did.
    Failed(u64, FabricError),
}

/// The object of `shim.c`.
#[repr(C)]
struct RawFabric {
    opaque: [u8; 0],
}

/// The event of `shim.c`.
#[repr(C)]
#[derive(Default)]
struct RawEvent {
    kind: c_int,
    error: c_int,
    value: u64,
}

// SAFETY: these are the functions of `shim.c`, which is compiled with this crate, under the types that it has there. The
// demands of each function on its arguments are met where it is called.
unsafe extern "C" {
    fn amcast_fabric_open(
        provider: *const c_char,
        bind: *const c_char,
        landing: *mut u8,
        landing_len: usize,
        staging: *mut u8,
        staging_len: usize,
        key: u64,
        token: u64,
        out: *mut *mut RawFabric,
        step: *mut *const c_char,
    ) -> c_int;
    fn amcast_fabric_close(fabric: *mut RawFabric) -> c_int;
    fn amcast_fabric_address(
        fabric: *mut RawFabric,
        name: *mut u8,
        len: *mut usize,
        base: *mut u64,
        key: *mut u64,
    ) -> c_int;
    fn amcast_fabric_names_sockets(fabric: *mut RawFabric) -> c_int;
    fn amcast_fabric_meet(fabric: *mut RawFabric, name: *const u8, token: u64) -> c_int;
    fn amcast_fabric_write(
        fabric: *mut RawFabric,
        from: usize,
        len: usize,
        target: u64,
        key: u64,
        id: u64,
    ) -> c_int;
    fn amcast_fabric_notify(fabric: *mut RawFabric, value: u64) -> c_int;
    fn amcast_fabric_orders(fabric: *mut RawFabric) -> c_int;
    fn amcast_fabric_poll(fabric: *mut RawFabric, event: *mut RawEvent) -> c_int;
    fn amcast_fabric_wait_fd(fabric: *mut RawFabric) -> c_int;
    fn amcast_fabric_may_sleep(fabric: *mut RawFabric) -> c_int;
    fn amcast_fabric_release_signals() -> c_int;
    fn amcast_fabric_error(error: c_int) -> *const c_char;
    fn amcast_fabric_again() -> c_int;
}

/// Libfabric's words for an error number.
fn words_for(error: c_int) -> String {
    // SAFETY: the function takes any number, and gives a string that is never freed.
    let words = unsafe { CStr::from_ptr(amcast_fabric_error(error)) };
    words.to_string_lossy().into_owned()
}

fn done(rc: c_int) -> Result<(), FabricError> {
    if rc < 0 { Err(FabricError::Operation(words_for(rc))) } else { Ok(()) }
}

/// Whether an operation is begun; not, if there is no room for it now.
fn begun(rc: c_int) -> Result<bool, FabricError> {
    // SAFETY: the function only gives a number.
    if rc == unsafe { amcast_fabric_again() } {
        return Ok(false);
    }
    done(rc).map(|()| true)
}

/// A number that no other process can guess.
fn draw_key() -> Result<u64, FabricError> {
    let mut key = [0; 8];
    let drawn = File::open("/dev/urandom").and_then(|mut from| from.read_exact(&mut key));
    drawn.map_err(|e| FabricError::NoKey(format!("/dev/urandom: {e}")))?;
    Ok(u64::from_le_bytes(key))
}

/// Zeroed words of so many bytes, which are a multiple of 8.
fn zeroed(bytes: usize) -> Box<[AtomicU64]> {
    assert!(bytes > 0 && bytes.is_multiple_of(8), "buffers of whole words");
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

/// An endpoint for one remote writer, with the buffer that it writes into and the one from which this process writes.
///
/// One thread at a time uses it. Provider `tcp` lands nothing while it does not poll.
pub struct FabricEndpoint {
    /// None once it is closed.
    raw: Option<NonNull<RawFabric>>,
    landing: Box<[AtomicU64]>,
    staging: Box<[AtomicU64]>,
    own: FabricAddress,
    peer: Option<FabricAddress>,
}

// SAFETY: the object of the shim is used by the thread that has the endpoint, which libfabric's FI_THREAD_DOMAIN asks for: its
// domain has no other user. `&FabricEndpoint` gives out atomic words, a number and an address, and calls nothing.
unsafe impl Send for FabricEndpoint {}

impl fmt::Debug for FabricEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FabricEndpoint({:?})", self.own)
    }
}

impl FabricEndpoint {
    /// Opens an endpoint whose buffers have so many bytes, a multiple of 8.
    ///
    /// # Errors
    /// When libfabric has no such provider on this host, or no room.
    ///
    /// # Panics
    /// When the buffers are empty or do not consist of whole words.
    pub fn open(
        settings: &FabricSettings,
        landing_bytes: usize,
        staging_bytes: usize,
    ) -> Result<Self, FabricError> {
        let full = settings.provider_in_full();
        let provider = CString::new(full.clone()).map_err(|_| FabricError::Name(full.clone()))?;
        // An address in digits has no zero byte.
        let bind = settings.bind.and_then(|bind| CString::new(bind.to_string()).ok());
        let (key, token) = (draw_key()?, draw_key()?);
        let (landing, staging) = (zeroed(landing_bytes), zeroed(staging_bytes));
        let (mut raw, mut step) = (ptr::null_mut(), ptr::null());
        // SAFETY: the strings end with zero and outlive the call. The buffers have the given lengths. They stay where they are,
        // and are freed by `release` only after the object is closed. They are atomic words, so that the library may
        // store to them through a pointer that comes from a shared borrow.
        let rc = unsafe {
            amcast_fabric_open(
                provider.as_ptr(),
                bind.as_ref().map_or(ptr::null(), |bind| bind.as_ptr()),
                landing.as_ptr().cast_mut().cast(),
                landing_bytes,
                staging.as_ptr().cast_mut().cast(),
                staging_bytes,
                key,
                token,
                &raw mut raw,
                &raw mut step,
            )
        };
        let Some(raw) = NonNull::new(raw).filter(|_| rc == 0) else {
            // SAFETY: the shim has named the call that failed, with a string literal.
            let step = unsafe { CStr::from_ptr(step) }.to_string_lossy().into_owned();
            let says = words_for(rc);
            return Err(FabricError::Open { provider: full, bind: settings.bind, step, says });
        };
        let (peer, bytes) = (None, landing_bytes as u64);
        let own = FabricAddress { name: Vec::new(), base: 0, key: 0, bytes, token };
        let mut endpoint = Self { raw: Some(raw), landing, staging, own, peer };
        endpoint.learn_address()?;
        Ok(endpoint)
    }

    fn learn_address(&mut self) -> Result<(), FabricError> {
        let raw = self.raw()?;
        let mut name = vec![0; NAME_BYTES_MAX];
        let mut len = name.len();
        // SAFETY: the object is open; the name has room for as many bytes as `len` says, and the others are one word each.
        done(unsafe {
            amcast_fabric_address(
                raw,
                name.as_mut_ptr(),
                &raw mut len,
                &raw mut self.own.base,
                &raw mut self.own.key,
            )
        })?;
        name.truncate(len);
        self.own.name = name;
        Ok(())
    }

    fn raw(&self) -> Result<*mut RawFabric, FabricError> {
        let closed = || FabricError::Operation("the endpoint is closed".to_string());
        self.raw.map(NonNull::as_ptr).ok_or_else(closed)
    }

    /// The name and key for the writer, to be sent over a connection that others cannot read.
    pub fn address(&self) -> &FabricAddress {
        &self.own
    }

    /// The landing buffer. Its bytes are settled once their write is complete, until the peer writes there again.
    pub fn landing(&self) -> &[AtomicU64] {
        &self.landing
    }

    /// The staging buffer. Bytes of a write stay as they are until it is complete.
    pub fn staging(&self) -> &[AtomicU64] {
        &self.staging
    }

    /// The endpoint that this one writes to. The first call counts.
    ///
    /// # Errors
    /// When the address is of another kind than this endpoint's.
    pub fn meet(&mut self, peer: FabricAddress) -> Result<(), FabricError> {
        let raw = self.raw()?;
        // SAFETY: the object is open.
        let has_family = unsafe { amcast_fabric_names_sockets(raw) } != 0;
        // A provider reads as many bytes of a socket address as its family has.
        let is_alike = peer.name.len() == self.own.name.len()
            && (!has_family || peer.name.get(..2) == self.own.name.get(..2));
        if self.peer.is_some() || !is_alike {
            return Err(FabricError::Peer);
        }
        // Names of some providers are text, which is read up to its zero byte.
        let mut name = [0; NAME_BYTES_MAX + 1];
        name[..peer.name.len()].copy_from_slice(&peer.name);
        // SAFETY: the object is open. The name is as long as one of its provider, and of the same family; a zero byte is behind it,
        // since an own name has at most so many bytes, too.
        done(unsafe { amcast_fabric_meet(raw, name.as_ptr(), peer.token) })?;
        self.peer = Some(peer);
        Ok(())
    }

    /// Begins a write; false if there is no room for it now: poll, and try again.
    ///
    /// # Errors
    /// When it cannot be begun.
    ///
    /// # Panics
    /// When there is no peer, or the bytes are not all within both buffers.
    pub fn write(&mut self, write: FabricWrite) -> Result<bool, FabricError> {
        let raw = self.raw()?;
        let peer = self.peer.as_ref().expect("an endpoint that has met its peer");
        let ends = |from: usize, most: u64| {
            from.checked_add(write.bytes).is_some_and(|end| end as u64 <= most)
        };
        let staged = self.staging.len() as u64 * 8;
        assert!(ends(write.from, staged) && ends(write.to, peer.bytes), "bytes of both buffers");
        let target = peer.base.wrapping_add(write.to as u64);
        // SAFETY: the object is open, and the bytes are within its staging buffer, which it keeps until it is closed. The peer's
        // provider checks the target.
        let rc = unsafe {
            amcast_fabric_write(raw, write.from, write.bytes, target, peer.key, write.id)
        };
        begun(rc)
    }

    /// Sends the peer a notice; false if there is no room for it now: poll, and try again.
    ///
    /// # Errors
    /// When it cannot be sent.
    ///
    /// # Panics
    /// When there is no peer.
    pub fn notify(&mut self, value: u64) -> Result<bool, FabricError> {
        let raw = self.raw()?;
        assert!(self.peer.is_some(), "an endpoint that has met its peer");
        // SAFETY: the object is open; the value is copied.
        begun(unsafe { amcast_fabric_notify(raw, value) })
    }

    /// Whether the provider keeps a notice behind the writes that were begun before it. If not, it may only be sent once
    /// they are complete.
    pub fn orders_notices(&self) -> bool {
        // SAFETY: the object is open.
        self.raw().is_ok_and(|raw| unsafe { amcast_fabric_orders(raw) } != 0)
    }

    /// Makes progress, for the peer's writes too, and gives the next event.
    ///
    /// # Errors
    /// When the endpoint is of no use any more.
    pub fn poll(&mut self) -> Result<Option<FabricEvent>, FabricError> {
        let raw = self.raw()?;
        let mut event = RawEvent::default();
        // SAFETY: the object is open, and the event has room.
        let rc = unsafe { amcast_fabric_poll(raw, &raw mut event) };
        done(rc)?;
        Ok((rc > 0).then(|| match event.kind {
            1 => FabricEvent::Written(event.value),
            2 => FabricEvent::Notice(event.value),
            4 => FabricEvent::Foreign,
            _ => {
                let why = FabricError::Operation(words_for(event.error));
                FabricEvent::Failed(event.value, why)
            }
        }))
    }

    /// The descriptor that is ready when there may be events; none if the provider has none, and then only polling finds them.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let raw = self.raw().ok()?;
        // SAFETY: the object is open.
        let fd = unsafe { amcast_fabric_wait_fd(raw) };
        // SAFETY: the descriptor belongs to the object's queue, and stays open as long as this endpoint, which the borrow does
        // not outlive.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether there is nothing to do before the descriptor is ready. To be asked right before sleeping.
    pub fn may_sleep(&mut self) -> bool {
        // SAFETY: the object is open.
        self.raw().is_ok_and(|raw| unsafe { amcast_fabric_may_sleep(raw) } != 0)
    }

    /// Ends the peer's access: closes the registration, and then the endpoint. No byte lands after this returns. Gives what
    /// landed before.
    ///
    /// # Errors
    /// When libfabric cannot close it; the buffers are never freed then, and the peer may still write into them.
    pub fn close(mut self) -> Result<Box<[AtomicU64]>, FabricError> {
        self.release()?;
        Ok(core::mem::take(&mut self.landing))
    }

    fn release(&mut self) -> Result<(), FabricError> {
        let Some(raw) = self.raw.take() else { return Ok(()) };
        // SAFETY: the object was open, and `raw` is none from here on.
        let closed = done(unsafe { amcast_fabric_close(raw.as_ptr()) });
        if closed.is_err() {
            // The peer may still write there.
            Box::leak(core::mem::take(&mut self.landing));
            Box::leak(core::mem::take(&mut self.staging));
        }
        closed
    }
}

impl Drop for FabricEndpoint {
    fn drop(&mut self) {
        // The buffers outlive an endpoint that does not close, and there is nobody to tell.
        let _ = self.release();
    }
}
