package s3

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
)

// Checksum names an additional checksum, in the sense of
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html.
type Checksum string

// Checksums that can be asked for. The store keeps it with the object; a Get of a whole object compares it.
const (
	ChecksumNone      Checksum = ""
	ChecksumCRC32     Checksum = "crc32"
	ChecksumCRC32C    Checksum = "crc32c"
	ChecksumCRC64NVME Checksum = "crc64nvme"
	ChecksumSHA256    Checksum = "sha256"
)

func (c Checksum) check() error {
	switch c {
	case ChecksumNone, ChecksumCRC32, ChecksumCRC32C, ChecksumCRC64NVME, ChecksumSHA256:
		return nil
	}
	return fmt.Errorf("s3: unknown checksum %q: there are crc32, crc32c, crc64nvme and sha256", string(c))
}

func (c Checksum) header() string { return "X-Amz-Checksum-" + string(c) }

func (c Checksum) of(body []byte) string {
	var b []byte
	switch c {
	case ChecksumCRC32:
		b = binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))
	case ChecksumCRC32C:
		b = binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	case ChecksumCRC64NVME:
		const nvme = 0x9a6c9329ac4bc9b5 // NVM Express polynomial, reflected
		b = binary.BigEndian.AppendUint64(nil, crc64.Checksum(body, crc64.MakeTable(nvme)))
	case ChecksumSHA256:
		sum := sha256.Sum256(body)
		b = sum[:]
	}
	return base64.StdEncoding.EncodeToString(b)
}
