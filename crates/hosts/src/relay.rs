//! Delay: a thread that takes the frames of a host from one device and writes them to another one later.
//!
//! The devices are macvtap devices, which a process opens as files. A frame has the kernel's `virtio_net_hdr`
//! before it, in which the kernel notes that a checksum is still to be computed; it is passed on with the frame.

use crate::LabError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, Timespec, makedev, mknodat, open, unlink};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most frames that are delayed at a time on one link. More are dropped, as by a full switch.
pub(crate) const FRAMES_MAX: usize = 65_536;

/// The largest frame with its header, in bytes.
const FRAME_BYTES_MAX: usize = (64 << 10) + 256;

/// Frames that are read from one device before the other one has its turn.
const FRAMES_PER_TURN: usize = 64;

/// The two devices of a relay.
#[derive(Debug)]
struct RelayDevices {
    /// Frames of the host.
    host: OwnedFd,
    /// Frames of the switch's port.
    port: OwnedFd,
}

/// The relay of one link. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct DelayRelay {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl DelayRelay {
    /// Starts the relay of a host's link, whose devices exist in this namespace.
    ///
    /// # Errors
    /// When the devices cannot be opened.
    pub(crate) fn start(switch: &str, host: usize, delay: Duration) -> Result<Self, LabError> {
        let devices = RelayDevices {
            host: open_device(switch, &format!("ctap{host}"))?,
            port: open_device(switch, &format!("stap{host}"))?,
        };
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

/// Opens the file of a macvtap device in a namespace.
pub(crate) fn open_device(namespace: &str, device: &str) -> Result<OwnedFd, LabError> {
    let (major, minor) = device_number(namespace, device)?;
    // A file of our own: the one that the kernel makes in /dev has the same name for devices of several namespaces.
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = format!("/dev/amcast-{}-tap{number}", std::process::id());
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(major, minor))
        .map_err(|e| LabError::system(format!("make {path}"), e))?;
    let file = open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let removed = unlink(&path);
    removed.map_err(|e| LabError::system(format!("remove {path}"), e))?;
    file.map_err(|e| LabError::system(format!("open the device {device}"), e))
}

/// The major and minor number of a macvtap device. Only a process in the namespace sees them.
fn device_number(namespace: &str, device: &str) -> Result<(u32, u32), LabError> {
    let script = format!("cat /sys/class/net/{device}/macvtap/*/dev");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "sh", "-c", &script]).stdin(Stdio::null());
    let output = command.output().map_err(|error| LabError::Program { program: "ip", error })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.trim().split_once(':');
    let numbers = numbers.map(|(major, minor)| (major.parse(), minor.parse()));
    match numbers {
        Some((Ok(major), Ok(minor))) => Ok((major, minor)),
        _ => Err(LabError::Refused {
            command: script,
            message: String::from_utf8_lossy(&output.stderr).trim().to_string(),
        }),
    }
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
fn turn(device: &OwnedFd, frame: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
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
