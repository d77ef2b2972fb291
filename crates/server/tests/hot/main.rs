//! Hot keys in whole servers over the memory network: found, moved, shown, and safe meanwhile.

mod alone;
mod balance;
mod checker;
mod crowd;
mod histories;
mod hostile;
mod shown;

use laneway_rig as rig;
