/* The pixels of plain PNG files: 8 bits, one or three channels.
 *
 * zlib decompresses them: it is asked for at run time, so that nothing has to be there when this is built.
 */
#include <stdlib.h>
#include <string.h>

#include "../layers/native/every_cpu.h"

typedef unsigned char Byte;

INLINE int distance(int value) { return value < 0 ? -value : value; }

/* Of the pixels to the left, above, and above that to the left, the one that is nearest to left + above - corner. */
INLINE int paeth(int left, int above, int corner) {
  int from_left = distance(above - corner), from_above = distance(left - corner);
  int from_corner = distance(above + left - 2 * corner);
  int nearest = from_above <= from_corner ? above : corner;
  return from_left <= from_above && from_left <= from_corner ? left : nearest;
}

/* One line of `width` bytes after the byte that names its filter. The channels of a pixel do not depend on each other. */
INLINE int line(const Byte *filtered, const Byte *above, Byte *y, Size width, Size channels) {
  const Byte *x = filtered + 1;
  int left[3] = {0}, corner[3] = {0};
  switch (*filtered) {
    case 0:
      for (Size i = 0; i < width; i++) y[i] = x[i];
      return 0;
    case 1:
      for (Size i = 0; i < width; i += channels)
        for (Size c = 0; c < channels; c++) y[i + c] = (Byte)(left[c] = (x[i + c] + left[c]) & 255);
      return 0;
    case 2:
      for (Size i = 0; i < width; i++) y[i] = (Byte)(x[i] + above[i]);
      return 0;
    case 3:
      for (Size i = 0; i < width; i += channels)
        for (Size c = 0; c < channels; c++)
          y[i + c] = (Byte)(left[c] = (x[i + c] + (left[c] + above[i + c]) / 2) & 255);
      return 0;
    case 4:
      for (Size i = 0; i < width; i += channels)
        for (Size c = 0; c < channels; c++) {
          y[i + c] = (Byte)(left[c] = (x[i + c] + paeth(left[c], above[i + c], corner[c])) & 255);
          corner[c] = above[i + c];
        }
      return 0;
    default:
      return 1;
  }
}

INLINE int image(const Byte *filtered, const Byte *nothing, Byte *y, Size height, Size width, Size channels) {
  for (Size i = 0; i < height; i++) {
    const Byte *above = i ? y + (i - 1) * width : nothing;
    if (line(filtered + i * (width + 1), above, y + i * width, width, channels)) return 1;
  }
  return 0;
}

/* zlib's function of this name: 0 if there were just as many bytes as fit, or fewer. */
typedef int Uncompress(Byte *y, unsigned long *bytes, const Byte *compressed, unsigned long compressed_bytes);

/* Images of one size, each compressed by itself, become y, (images, height, width); a pixel is `channels` bytes of a line.
 * 1 if one is damaged, or there is no memory. */
int png_decode(Uncompress *uncompress, const Byte *const *compressed, const unsigned long *bytes, Byte *y, Size images,
               Size height, Size width, Size channels, int threads) {
  const Size lines = height * (width + 1);
  int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed) if (threads > 1)
  {
    Byte *filtered = malloc((size_t)(lines + width)), *nothing = filtered + lines;
    if (filtered) memset(nothing, 0, (size_t)width);
    FOR_OWN_SHARE(i, images) {
      unsigned long found = (unsigned long)lines;
      if (!filtered || uncompress(filtered, &found, compressed[i], bytes[i]) || found != (unsigned long)lines)
        failed = 1;
      else
        failed |= channels == 3 ? image(filtered, nothing, y + i * height * width, height, width, 3)
                                : image(filtered, nothing, y + i * height * width, height, width, 1);
    }
    free(filtered);
  }
  return failed;
}
