package arith

// Lop3Table is a lop3.b32 whose truth table is prepared for use on many words: three levels of
// selection, by c, b and a. Its words are 0 or all ones.
type Lop3Table struct {
	zero [4]uint32 // for each pair of bits a, b: the result if c's bit is 0
	flip [4]uint32 // and whether the result differs if c's bit is 1
}

// PrepareLop3 prepares a truth table. Its bit 4a+2b+c is the result for bits a, b and c.
func PrepareLop3(table uint8) Lop3Table {
	var l Lop3Table
	for i := range 4 {
		zero, one := table>>(2*i)&1, table>>(2*i+1)&1
		l.zero[i], l.flip[i] = -uint32(zero), -uint32(zero^one)
	}
	return l
}

// Do returns the instruction's result.
func (l *Lop3Table) Do(a, b, c uint32) uint32 {
	low := l.zero[0] ^ l.flip[0]&c
	low ^= (low ^ l.zero[1] ^ l.flip[1]&c) & b
	high := l.zero[2] ^ l.flip[2]&c
	high ^= (high ^ l.zero[3] ^ l.flip[3]&c) & b
	return low ^ (low^high)&a
}

// Lop3 is lop3.b32 on one word. A loop should prepare the table instead.
func Lop3(a, b, c uint32, table uint8) uint32 {
	l := PrepareLop3(table)
	return l.Do(a, b, c)
}
