package webpage

// pictureLabel is what a screen reader says for a picture. The tables below the picture have the same facts.
const pictureLabel = "hypergate and istiod on the management cluster, and their connections to the guest"

// wide returns the picture with both clusters side by side, for a screen of at least 700 pixels.
func wide(f facts) picture {
	const (
		width, height      = 980, 420
		frameW, boxW       = 372, 348
		mgmtX, guestX      = 8, 600
		mgmtBox, guestBox  = mgmtX + 12, guestX + 12
		mgmtEdge           = mgmtBox + boxW
		first, second      = 46, 136
		third, fourth      = 242, 332
		usual, tall, short = 72, 178, 70
	)
	out := picture{W: width, H: height, Label: pictureLabel, Frames: []frame{
		{mgmtX, 8, frameW, height - 16, mgmtX + 12, 32, "management cluster", cut(f.namespace, 190)},
		{guestX, 8, frameW, height - 16, guestX + 12, 32, "guest", cut(f.guest, 280)},
	}}
	out.Boxes = []box{
		boxOf(mgmtBox, first, boxW, usual, f.hypergate),
		boxOf(mgmtBox, second, boxW, tall-usual-18, f.istiod),
		boxOf(mgmtBox, third, boxW, usual, f.published),
		boxOf(mgmtBox, fourth, boxW, short, f.ca),
		boxOf(guestBox, first, boxW, tall, f.api),
		boxOf(guestBox, third, boxW, usual, f.gateways),
		boxOf(guestBox, fourth, boxW, short, f.crds),
	}
	out.Arrows = []arrow{
		across(mgmtEdge, guestBox, first+46, f.toCredential),
		across(mgmtEdge, guestBox, second+22, f.toToken),
		across(guestBox, mgmtEdge, second+76, f.fromWebhook),
		across(guestBox, mgmtEdge, third+46, f.fromProxy),
	}
	return out
}

// narrow returns the picture with the management cluster above the guest, for a phone.
func narrow(f facts) picture {
	const (
		width, frameW, boxX, boxW = 360, 352, 14, 332
		step, usual               = 78, 70
		mgmtH, gap                = 4*step + 38, 118
		guestY                    = 4 + mgmtH + gap
		guestH                    = 3*step + 38
		height                    = guestY + guestH + 4
		column                    = width / 4
	)
	out := picture{W: width, H: height, Label: pictureLabel, Frames: []frame{
		{4, 4, frameW, mgmtH, boxX, 26, "management cluster", cut(f.namespace, 170)},
		{4, guestY, frameW, guestH, boxX, guestY + 22, "guest", cut(f.guest, 260)},
	}}
	for i, one := range []fact{f.hypergate, f.istiod, f.published, f.ca} {
		out.Boxes = append(out.Boxes, boxOf(boxX, 36+i*step, boxW, usual, one))
	}
	for i, one := range []fact{f.api, f.gateways, f.crds} {
		out.Boxes = append(out.Boxes, boxOf(boxX, guestY+32+i*step, boxW, usual, one))
	}
	top, bottom := 4+mgmtH, guestY
	short := func(f fact, title string) fact { f.title = title; return f }
	for i, one := range []fact{short(f.toCredential, "credential"), short(f.toToken, "token")} {
		out.Arrows = append(out.Arrows, along(column/2+i*column, top, bottom, column, one)...)
	}
	for i, one := range []fact{f.fromWebhook, f.fromProxy} {
		out.Arrows = append(out.Arrows, along(column/2+(i+2)*column, bottom, top, column, one)...)
	}
	return out
}
