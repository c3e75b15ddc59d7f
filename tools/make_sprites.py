"""Draw the built-in sprites from Debian's fonts-noto-color-emoji and write them as small PNGs.

    apt-get install fonts-noto-color-emoji && python tools/make_sprites.py

Each sprite is cropped to its visible pixels, so that its own edges are the edges of the truth box, and is at most
64 px on its longer side. The shipped files were made by exactly this command.
"""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
FONT_SIZE = 109  # the only size of the font's bitmaps
LONGER_SIDE_PX = 64
OUT = Path(__file__).parent.parent / "src/oncurve/tasks/sprites"

NAMES = {
    "cat": "🐈", "dog": "🐕", "horse": "🐎", "cow": "🐄", "pig": "🐖", "sheep": "🐑", "rabbit": "🐇",
    "elephant": "🐘", "monkey": "🐒", "duck": "🦆", "owl": "🦉", "fish": "🐟", "turtle": "🐢", "frog": "🐸",
    "snail": "🐌", "butterfly": "🦋", "bee": "🐝", "crab": "🦀", "car": "🚗", "bus": "🚌", "bicycle": "🚲",
    "train": "🚂", "apple": "🍎", "banana": "🍌", "carrot": "🥕", "pizza": "🍕", "cake": "🎂", "ball": "⚽",
    "book": "📕", "clock": "⏰", "key": "🔑", "bulb": "💡", "chair": "🪑", "guitar": "🎸", "flower": "🌻", "tree": "🌳",
}  # fmt: skip


def draw(character: str) -> Image.Image:
    canvas = Image.new("RGBA", (160, 160))
    font = ImageFont.truetype(FONT, FONT_SIZE)
    ImageDraw.Draw(canvas).text((10, 10), character, font=font, embedded_color=True)
    sprite = canvas.crop(canvas.getchannel("A").point(lambda a: 255 * (a > 32)).getbbox())
    scale = LONGER_SIDE_PX / max(sprite.size)
    return sprite.resize([max(1, round(side * scale)) for side in sprite.size], Image.Resampling.LANCZOS)


if __name__ == "__main__":
    for name, character in NAMES.items():
        draw(character).quantize(128, method=Image.Quantize.FASTOCTREE).save(OUT / f"{name}.png", optimize=True)
