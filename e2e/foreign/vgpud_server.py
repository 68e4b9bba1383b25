"""A pytest plugin that turns libvfio-user's Python tests on vgpud's server.

Those tests are a vfio-user client and, through ctypes, the library's server in one
process: each sets up a device by the library's functions, sends messages on a
socket, and has the library handle them. This plugin, loaded before them by
`-p vgpud_server`, replaces these functions: what they set up is the description of
a device, which a program of ours (VGPUD_FOREIGN_SERVE) serves at the socket that
the tests use. Messages and replies are then ours; nothing of the tests is changed.

A test that asks for what only the library has, such as one of its functions or a
callback, is skipped with the reason. scripts/foreign.sh has the rest.
"""

import ctypes
import errno
import json
import os
import socket
import subprocess

import pytest

import libvfio_user as lib

# Any reply is a matter of milliseconds; a test that waits for one that doesn't come fails.
socket.setdefaulttimeout(5)

LIBRARY = "looks at the library itself"
CALLBACK = "looks at a callback of the library"
NO_TABLE = "the device reaches no client memory, so the server keeps no table of it"

# Whole files, and tests, that look at something else than messages, or at what this
# server does otherwise on purpose.
NOT_OURS = {
    "test_destroy.py": LIBRARY,
    "test_device_get_region_io_fds.py": "ioeventfds are not offered: always ENOTSUP",
    "test_dirty_pages.py": NO_TABLE,
    "test_migration.py": "migration is not offered",
    "test_pci_caps.py": LIBRARY,
    "test_pci_ext_caps.py": LIBRARY,
    "test_quiesce.py": CALLBACK,
    "test_sgl_get_put.py": LIBRARY,
    "test_sgl_read_write.py": LIBRARY,
    "test_shadow_ioeventfd.py": LIBRARY,
    "test_vfu_create_ctx.py": LIBRARY,
    "test_vfu_realize_ctx.py": LIBRARY,

    "test_device_get_region_info.py::"
    "test_device_get_pci_config_space_info_implicit_no_pci_init": LIBRARY,
    "test_device_set_irqs.py::test_irq_state": CALLBACK,
    "test_dma_map.py::test_dma_region_too_big": NO_TABLE,
    "test_dma_map.py::test_dma_region_too_many": NO_TABLE,
    "test_dma_map.py::test_dma_map_reply_fail": CALLBACK,
    "test_dma_map.py::test_dma_map_busy_reply_fail": CALLBACK,
    "test_dma_unmap.py::test_dma_unmap_invalid_addr":
        "what was never mapped is unmapped with success, as QEMU needs it",
    "test_negotiate.py::test_invalid_json_bad_max_fds3":
        "a client may take more descriptors than it is sent",
    "test_negotiate.py::test_invalid_json_bad_migration_object":
        "migration is not offered, and not read about",
    "test_negotiate.py::test_invalid_json_bad_pgsize":
        "migration is not offered, and not read about",
    "test_negotiate.py::test_invalid_json_bad_pgsize2":
        "migration is not offered, and not read about",
    "test_negotiate.py::test_valid_negotiate_no_json":
        "wants the library's own limits, and migration",
    "test_request_errors.py::test_too_large":
        "the largest message is larger here",
    "test_request_errors.py::test_bad_request_closes_fds":
        "counts descriptors of the test's own process",
    "test_request_errors.py::test_disconnected_socket": CALLBACK,
    "test_request_errors.py::test_disconnected_socket_quiesce_busy": CALLBACK,
    "test_request_errors.py::test_reply_fail_quiesce_busy": CALLBACK,
    "test_setup_region.py::test_setup_region_bad_flags": LIBRARY,
    "test_setup_region.py::test_setup_region_bad_mmap_areas": LIBRARY,
    "test_setup_region.py::test_setup_region_bad_pci": LIBRARY,
    "test_setup_region.py::test_setup_region_64bit_bar_odd_indices": LIBRARY,
    "test_setup_region.py::test_setup_region_64bit_even_then_odd_fails": LIBRARY,
    "test_setup_region.py::test_setup_region_64bit_odd_then_even_fails": LIBRARY,
    "test_setup_region.py::test_setup_region_cfg_always_cb_nocb": LIBRARY,
    "test_setup_region.py::test_setup_region_cfg_always_cb": CALLBACK,
}


def pytest_collection_modifyitems(items):
    for item in items:
        name = os.path.basename(str(item.fspath))
        reason = NOT_OURS.get(name) or NOT_OURS.get(name + "::" + item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


class Device:
    """A device as the tests set it up, and the process that serves it."""

    def __init__(self):
        self.regions = {}
        self.irqs = {}
        self.process = None

    def describe(self):
        return json.dumps({
            "socket": lib.SOCK_PATH.decode(),
            "regions": list(self.regions.values()),
            "irqs": self.irqs,
        })

    def start(self):
        self.stop()
        fds = [r["fd"] for r in self.regions.values() if r["fd"] >= 0]
        self.process = subprocess.Popen(
            [os.environ["VGPUD_FOREIGN_SERVE"]], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, pass_fds=fds, text=True)
        assert self.ask(self.describe()) == "ready", "the server did not start"

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def stop(self):
        if self.process:
            self.process.stdin.close()
            assert self.process.wait() == 0, "the server failed"
            self.process.stdout.close()
            self.process = None

    def changed(self):
        if self.process:
            self.start()


device = Device()


def create_ctx(trans=lib.VFU_TRANS_SOCK, sock_path=lib.SOCK_PATH, flags=0,
               private=None, dev_type=lib.VFU_DEV_TYPE_PCI):
    device.stop()
    device.__init__()
    return 1


def pci_init(ctx, pci_type=lib.VFU_PCI_TYPE_EXPRESS,
             hdr_type=lib.PCI_HEADER_TYPE_NORMAL):
    size = (lib.PCI_CFG_SPACE_EXP_SIZE if pci_type == lib.VFU_PCI_TYPE_EXPRESS
            else lib.PCI_CFG_SPACE_SIZE)
    return setup_region(ctx, lib.VFU_PCI_DEV_CFG_REGION_IDX, size,
                        flags=lib.VFU_REGION_FLAG_RW)


def setup_region(ctx, index, size, cb=None, flags=0, mmap_areas=None,
                 nr_mmap_areas=None, fd=-1, offset=0):
    if index < 0 or index >= lib.VFU_PCI_DEV_NUM_REGIONS or \
            index <= lib.VFU_PCI_DEV_BAR5_REGION_IDX and size & (size - 1):
        pytest.skip("the library's checks of its caller")
    if fd >= 0:
        fd = os.dup(fd)
    device.regions[index] = {
        "index": index, "size": size, "fd": fd, "offset": offset,
        "is64": bool(flags & lib.VFU_REGION_FLAG_64_BITS),
        "readable": bool(flags & lib.VFU_REGION_FLAG_READ),
        "writable": bool(flags & lib.VFU_REGION_FLAG_WRITE),
        "areas": [[base or 0, length] for base, length in mmap_areas or []],
    }
    device.changed()
    return 0


def setup_device_nr_irqs(ctx, irqtype, count):
    device.irqs[irqtype] = count
    device.changed()
    return 0


def realize_ctx(ctx):
    device.start()
    return 0


def destroy_ctx(ctx):
    device.stop()


def irq_trigger(ctx, subindex):
    """As the library: MSI-X if there is any, else INTx."""
    index = (lib.VFU_DEV_MSIX_IRQ if device.irqs.get(lib.VFU_DEV_MSIX_IRQ)
             else lib.VFU_DEV_INTX_IRQ)
    if subindex >= device.irqs[index]:
        return fails(errno.EINVAL)
    if device.ask("%d %d" % (index, subindex)) != "true":
        return fails(errno.ENOENT)
    return 0


def fails(error):
    ctypes.set_errno(error)
    return -1


def handle(ctx, expect=0):
    """The server handles messages by itself."""
    return fails(expect) if expect else 0


def nothing(*args, **kwargs):
    """The server has no callbacks."""
    return 0


def library_only(name):
    def skip(*args, **kwargs):
        pytest.skip("%s is a function of the library" % name)
    return skip


OURS = {
    "vfu_create_ctx": create_ctx,
    "vfu_pci_init": pci_init,
    "vfu_setup_region": setup_region,
    "vfu_setup_device_nr_irqs": setup_device_nr_irqs,
    "vfu_realize_ctx": realize_ctx,
    "vfu_destroy_ctx": destroy_ctx,
    "vfu_irq_trigger": irq_trigger,
    "vfu_attach_ctx": handle,
    "vfu_run_ctx": handle,
    "vfu_setup_device_dma": nothing,
    "vfu_setup_device_quiesce_cb": nothing,
    "vfu_setup_device_reset_cb": nothing,
    "vfu_setup_irq_state_callback": nothing,
    "vfu_setup_device_migration_callbacks": nothing,
}

for _name in dir(lib):
    if _name.startswith("vfu_") and callable(getattr(lib, _name)) and \
            not isinstance(getattr(lib, _name), type):
        setattr(lib, _name, OURS.get(_name, library_only(_name)))
lib.get_pci_header = library_only("vfu_pci_get_config_space")
lib.get_pci_cfg_space = library_only("vfu_pci_get_config_space")
lib.get_pci_ext_cfg_space = library_only("vfu_pci_get_config_space")


@pytest.fixture(scope="module", autouse=True)
def server():
    """Ends what a file of tests has left."""
    yield
    device.stop()
