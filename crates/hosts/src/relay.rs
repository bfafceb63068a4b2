//! Delay: a thread that takes the frames of a host from one device and writes them to another one later.
//!
//! The devices are TAP devices, whose frames a process reads and writes. The kernel computes all checksums of what it sends on
//! them, and cuts nothing together or apart that is a frame.

use crate::LabError;
use crate::namespace::HostNamespace;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tappers::{Interface, Tap};

/// The most frames that are delayed at a time on one link. More are dropped, as by a full switch.
pub(crate) const FRAMES_MAX: usize = 65_536;

/// The largest frame, in bytes.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// Frames that are read from one device before the other one has its turn.
const FRAMES_PER_TURN: usize = 64;

/// The two devices of a relay.
pub(crate) struct RelayDevices {
    /// The host's own.
    host: Tap,
    /// The switch's port.
    port: Tap,
}

impl RelayDevices {
    /// Makes the device `eth` of a host, and its port of the switch.
    ///
    /// # Errors
    /// When the system refuses them.
    pub(crate) fn make(
        host: &HostNamespace,
        (switch, port): (&HostNamespace, &str),
    ) -> Result<Self, LabError> {
        Ok(Self { host: make_device(host, "eth")?, port: make_device(switch, port)? })
    }
}

/// The relay of one link. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct DelayRelay {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl DelayRelay {
    /// Starts the relay of a host's link.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start(
        devices: RelayDevices,
        host: usize,
        delay: Duration,
    ) -> Result<Self, LabError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|e| LabError::system("make an eventfd", e))?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(format!("link of host {host}"));
        let thread = thread.spawn(move || relay(&devices, &stopped, delay));
        let thread = thread.map_err(|e| LabError::system("start a thread", e))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for DelayRelay {
    fn drop(&mut self) {
        let written = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (written, self.thread.take()) {
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// Makes a device of this name in a namespace, whose frames this process reads and writes. It is there for as long as it is
/// held.
pub(crate) fn make_device(namespace: &HostNamespace, name: &str) -> Result<Tap, LabError> {
    let failed = |e| LabError::system(format!("make the device {name} of /dev/net/tun"), e);
    let made = namespace.run(|| Tap::new_named(Interface::new(name)?))?;
    let mut device = made.map_err(failed)?;
    device.set_nonblocking(true).map_err(failed)?;
    Ok(device)
}

/// Relays frames until it is stopped, or a device is gone.
fn relay(devices: &RelayDevices, stop: &OwnedFd, delay: Duration) {
    // Else each wait may last 50 microseconds longer. A kernel that refuses it only makes the delay less exact.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut delayed: VecDeque<(Instant, Box<[u8]>)> = VecDeque::new();
    let mut frame = vec![0; FRAME_BYTES_MAX];
    loop {
        let next = delayed.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let timeout = next.map(|wait| Timespec::try_from(wait).expect("a delay is short"));
        let mut files = [
            PollFd::new(&devices.host, PollFlags::IN),
            PollFd::new(&devices.port, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if !files[2].revents().is_empty() {
            return;
        }
        let from_host = turn(&devices.host, &mut frame, |bytes| {
            if delayed.len() < FRAMES_MAX {
                delayed.push_back((Instant::now() + delay, bytes.into()));
            }
        });
        let from_port = turn(&devices.port, &mut frame, |bytes| write(&devices.host, bytes));
        if from_host.is_err() || from_port.is_err() {
            return;
        }
        let now = Instant::now();
        while delayed.front().is_some_and(|(due, _)| *due <= now) {
            let (_, bytes) = delayed.pop_front().expect("it was looked at");
            write(&devices.port, &bytes);
        }
    }
}

/// Reads the frames that a device has, up to a limit.
fn turn(
    device: impl AsFd + Copy,
    frame: &mut [u8],
    mut each: impl FnMut(&[u8]),
) -> Result<(), Errno> {
    for _ in 0..FRAMES_PER_TURN {
        match rustix::io::read(device, &mut *frame) {
            Ok(length) => each(&frame[..length]),
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(gone) => return Err(gone),
        }
    }
    Ok(())
}

/// Writes a frame. One that the device does not take is lost, as on any link.
fn write(device: impl AsFd, frame: &[u8]) {
    let _ = rustix::io::write(device, frame);
}
