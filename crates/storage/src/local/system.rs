//! What kind of file system a file is on.

use std::fs::File;

/// File systems that are behind a network or a user-space server: `f_type` of statfs(2), from linux/magic.h unless said.
#[cfg(target_os = "linux")]
const REMOTE: [u32; 18] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS, fs/smb/client/cifsfs.h
    0xfe53_4d42, // SMB2, the same
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x7375_7245, // Coda
    0x564c,      // NCP
    0x786f_4256, // VirtualBox's shared folders
    0x0bd0_0bd0, // Lustre, lustre/include/lustre_user.h
    0x4750_4653, // GPFS, statfs(2)
    0x1980_0202, // BeeGFS, client_module/source/common/Common.h
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0xaad7_aaea, // PanFS
];

/// Whether reading `file` waits for another machine or a program: page faults on it are slow, and may fail.
/// overlay, tmpfs, ext4, xfs, btrfs and all that is unknown is local.
#[cfg(target_os = "linux")]
pub(super) fn is_remote(file: &File) -> bool {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers are 32 bits")]
    rustix::fs::fstatfs(file).is_ok_and(|fs| REMOTE.contains(&(fs.f_type as u32)))
}

/// Whether reading `file` waits for another machine or a program; assumed not elsewhere than on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_remote(_file: &File) -> bool {
    false
}

/// How a file is read at speed.
pub(super) fn pace(remote: bool) -> crate::Pace {
    if remote { crate::Pace::REMOTE } else { crate::Pace::LOCAL }
}
